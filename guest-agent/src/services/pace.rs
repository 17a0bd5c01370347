// SPDX-License-Identifier: GPL-2.0-or-later
//! Looks at the TCP connections of a process that is a stream.

use crate::adapters::procfs::Proc;
use crate::adapters::sockets::ForeignProcess;
use crate::adapters::subscriber::ready;
use crate::domain::pace::{Pace, TcpNumbers};
use crate::services::sources::{Look, Seen};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

pub struct Sockets {
    pid: i32,
    process: ForeignProcess,
    proc: Proc,
    pace: Pace,
}

impl Sockets {
    /// `desired_bps`: bytes per second.
    pub fn new(pid: i32, desired_bps: u64) -> io::Result<Sockets> {
        Ok(Sockets {
            pid,
            process: ForeignProcess::open(pid)?,
            proc: Proc::open()?,
            pace: Pace::new(desired_bps),
        })
    }

    fn connections(&self) -> io::Result<HashMap<u64, TcpNumbers>> {
        let mut found = HashMap::new();
        for (descriptor, inode) in self.proc.sockets(self.pid)?.1 {
            let socket = match self.process.ip_socket(descriptor, inode) {
                Ok(Some(socket)) => socket,
                Ok(None) => continue,
                // It was closed meanwhile.
                Err(error) if is_gone(&error) => continue,
                Err(error) => return Err(error),
            };
            if let Some(numbers) = socket.tcp_numbers()? {
                found.insert(inode, numbers);
            }
        }
        Ok(found)
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::EBADF)
}

impl Look for Sockets {
    fn look(&mut self) -> Result<Seen, String> {
        let pid = self.pid;
        let connections = self.connections();
        // Its number may be another process's by now.
        let has_ended = ready(&[self.process.as_fd()]).map_err(|error| error.to_string())?;
        if has_ended.contains(&true) {
            return Ok(Seen::End);
        }
        match connections {
            Ok(found) if found.is_empty() => Err(format!(
                "process {pid} has no TCP connection, and of UDP the kernel counts nothing: \
                 let the program report itself"
            )),
            Ok(found) => Ok(Seen::Counts(self.pace.add(found))),
            Err(error) => Err(format!(
                "cannot look at the sockets of process {pid} ({error}): run this as its user, \
                 or as root, who alone may where kernel.yama.ptrace_scope is not 0"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn own_pid() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn bytes_of_a_connection_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.write_all(&[0; 50_000]).unwrap();
        theirs.read_exact(&mut [0; 50_000]).unwrap();
        // Other tests have connections in this process, too.
        let sockets = Sockets::new(own_pid(), 1000).unwrap();
        let found = sockets.connections().unwrap();
        let is_there = |of: fn(&TcpNumbers) -> u64| found.values().any(|one| of(one) == 50_000);
        assert!(is_there(|one| one.received_bytes), "{found:?}");
        // The kernel counts the connection's beginning.
        let is_acked = |one: &TcpNumbers| (50_000..=50_001).contains(&one.acked_bytes);
        assert!(found.values().any(is_acked), "{found:?}");
    }

    #[test]
    fn a_process_that_has_ended_is_the_end() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let mut sockets = Sockets::new(child.id() as i32, 1000).unwrap();
        child.wait().unwrap();
        assert_eq!(sockets.look(), Ok(Seen::End));
        assert!(Sockets::new(i32::MAX, 1000).is_err());
    }

    #[test]
    fn a_process_without_connections_is_told_of() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut sockets = Sockets::new(child.id() as i32, 1000).unwrap();
        let outcome = sockets.look();
        child.kill().unwrap();
        child.wait().unwrap();
        let error = outcome.unwrap_err();
        assert!(error.contains(&child.id().to_string()), "{error}");
    }
}
