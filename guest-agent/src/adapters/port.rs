// SPDX-License-Identifier: GPL-2.0-or-later
//! The line to the host: a virtio-serial port, a terminal, or a UNIX socket.
//! Nothing here blocks. A virtio port whose host side is closed reads as end
//! of file and polls as hung up, yet stays open: the host may come back on it.

use crate::PORT_NAME;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub struct Port {
    file: File,
    /// End of file means the port itself is gone, not only the peer.
    ends_with_peer: bool,
}

#[derive(Debug)]
pub enum ReadOutcome {
    Data(usize),
    Nothing,
    /// The host side is closed; the port stays.
    HostAway,
    PortGone,
}

impl Port {
    pub fn open(path: &Path) -> io::Result<Port> {
        let is_socket = std::fs::metadata(path)?.file_type().is_socket();
        if is_socket {
            let stream = UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            let file = File::from(OwnedFd::from(stream));
            return Ok(Port {
                file,
                ends_with_peer: true,
            });
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
            .open(path)?;
        let is_terminal = file.is_terminal();
        if is_terminal {
            let mut modes = tcgetattr(&file)?;
            cfmakeraw(&mut modes);
            tcsetattr(&file, SetArg::TCSANOW, &modes)?;
        }
        Ok(Port {
            file,
            ends_with_peer: is_terminal,
        })
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> ReadOutcome {
        match self.file.read(buffer) {
            Ok(0) if self.ends_with_peer => ReadOutcome::PortGone,
            Ok(0) => ReadOutcome::HostAway,
            Ok(length) => ReadOutcome::Data(length),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                ReadOutcome::Nothing
            }
            Err(_) => ReadOutcome::PortGone,
        }
    }

    /// How much was taken; 0 if there is no room or no reader now.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.file.write(bytes) {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(0)
            }
            other => other,
        }
    }
}

/// Events of the port to wait for. An event that is not acted upon must be left out, or
/// the wait ends at once for ever.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    pub read: bool,
    pub write: bool,
}

/// The reasons for which the wait ended.
#[derive(Debug, Default, Clone, Copy)]
pub struct Wake {
    pub signal: bool,
    /// Of those that are waited for beside the port.
    pub other: bool,
    pub port: bool,
    /// The host side is closed.
    pub hang_up: bool,
}

/// Waits for a signal, the port, data of another descriptor, or the time. A port that is hung
/// up would wake at once for ever, so the caller leaves it out for a while then.
pub fn wait(
    signals: BorrowedFd,
    others: &[BorrowedFd],
    port: Option<(&Port, Wants)>,
    timeout_ns: u64,
) -> io::Result<Wake> {
    let mut fds = vec![PollFd::new(signals, PollFlags::POLLIN)];
    let others = others.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN));
    fds.extend(others);
    let port_at = fds.len();
    if let Some((port, wants)) = port {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, wants.read);
        events.set(PollFlags::POLLOUT, wants.write);
        fds.push(PollFd::new(port.file.as_fd(), events));
    }
    // Rounded up, or the last part of a millisecond would be spent spinning.
    let timeout_ms = i32::try_from(timeout_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
    match poll(
        &mut fds,
        PollTimeout::try_from(timeout_ms).unwrap_or(PollTimeout::MAX),
    ) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let events = |at: usize| {
        fds.get(at)
            .and_then(PollFd::revents)
            .unwrap_or(PollFlags::empty())
    };
    Ok(Wake {
        signal: !events(0).is_empty(),
        other: (1..port_at).any(|at| !events(at).is_empty()),
        port: !events(port_at).is_empty(),
        hang_up: events(port_at).contains(PollFlags::POLLHUP),
    })
}

/// The port's device file: the one asked for, or the one that the kernel lists
/// under this name where udev has made no link.
pub fn find(asked: &Path) -> Result<PathBuf, String> {
    if asked.exists() {
        return Ok(asked.to_owned());
    }
    let wanted = asked
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(PORT_NAME);
    let ports = std::fs::read_dir("/sys/class/virtio-ports")
        .into_iter()
        .flatten()
        .flatten();
    for port in ports {
        let name = std::fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim() == wanted {
            return Ok(Path::new("/dev").join(port.file_name()));
        }
    }
    Err(format!(
        "no port {}; add a virtio-serial channel named {PORT_NAME} to this virtual machine (on the host: sluice attach)",
        asked.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A port that has data to read, no room to write, and its host's end.
    fn full_port(name: &str) -> (Port, UnixStream) {
        let path = std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let mut port = Port::open(&path).unwrap();
        let (mut host, _) = listener.accept().unwrap();
        std::fs::remove_file(&path).unwrap();
        host.write_all(b"unread").unwrap();
        while port.write(&[0; 4096]).unwrap() > 0 {}
        (port, host)
    }

    fn look(port: &Port, read: bool) -> Wake {
        let (never, _peer) = UnixStream::pair().unwrap();
        let wants = Wants { read, write: true };
        wait(never.as_fd(), &[], Some((port, wants)), 1).unwrap()
    }

    #[test]
    fn unread_data_wakes_only_who_wants_it() {
        let (port, _host) = full_port("unread");
        assert!(look(&port, true).port);
        assert!(!look(&port, false).port);
    }

    #[test]
    fn a_closed_host_side_shows_whatever_is_waited_for() {
        let (port, host) = full_port("closed");
        assert!(!look(&port, false).hang_up);
        drop(host);
        assert!(look(&port, false).hang_up);
    }
}
