// SPDX-License-Identifier: GPL-2.0-or-later
//! The socket to which programs send reports: one datagram each. The kernel tells who sent it.
//! A sender that wants an answer passes the end of a socket pair along.

use crate::domain::report::MAX_REPORT_BYTES;
use nix::sys::socket::sockopt::PassCred;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, send, sendmsg,
    setsockopt,
};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const DEFAULT_PATH: &str = "/run/sluice-agent/report.sock";
/// A busy guest's agent may take its time.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The agent passes descriptors of others on to nobody; more than one is a mistake.
const MOST_DESCRIPTORS: usize = 4;

pub struct ReportSocket {
    socket: UnixDatagram,
    path: PathBuf,
}

#[derive(Debug)]
pub struct Received {
    pub bytes: Vec<u8>,
    pub pid: i32,
    pub uid: u32,
    answer_to: Option<OwnedFd>,
}

impl ReportSocket {
    /// Every user may send. One that a killed agent left is replaced.
    pub fn bind(path: &Path) -> io::Result<ReportSocket> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixDatagram::bind(path)?;
        socket.set_nonblocking(true)?;
        setsockopt(&socket, PassCred, &true)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        Ok(ReportSocket {
            socket,
            path: path.to_owned(),
        })
    }

    /// The next report that waits.
    pub fn receive(&self) -> io::Result<Option<Received>> {
        // One more than a report may have, so that a longer one is seen as such.
        let mut bytes = vec![0; MAX_REPORT_BYTES + 1];
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!(UnixCredentials, [RawFd; MOST_DESCRIPTORS]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut space),
            flags,
        ) {
            Ok(message) => message,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (mut pid, mut uid) = (0, u32::MAX);
        let mut passed: Vec<OwnedFd> = Vec::new();
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::ScmCredentials(sender) => {
                    (pid, uid) = (sender.pid(), sender.uid());
                }
                ControlMessageOwned::ScmRights(descriptors) => {
                    // SAFETY: the kernel has just made these descriptors for us.
                    let owned = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
                    passed.extend(descriptors.into_iter().map(owned));
                }
                _ => {}
            }
        }
        let length = message.bytes;
        bytes.truncate(length);
        Ok(Some(Received {
            bytes,
            pid,
            uid,
            answer_to: passed.into_iter().next(),
        }))
    }
}

impl AsFd for ReportSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ReportSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Received {
    /// Answers a sender that wants it; one that does not listen is not waited for.
    pub fn answer(&self, text: &str) {
        if let Some(to) = &self.answer_to {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(to.as_raw_fd(), text.as_bytes(), flags);
        }
    }
}

/// Sends a report and waits for the agent's answer.
pub fn send_report(path: &Path, report: &[u8]) -> io::Result<String> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    let (ours, theirs) = UnixDatagram::pair()?;
    ours.set_read_timeout(Some(ANSWER_WITHIN))?;
    let descriptors = [theirs.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let slices = [IoSlice::new(report)];
    sendmsg::<()>(
        socket.as_raw_fd(),
        &slices,
        &rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    drop(theirs);
    let mut answer = vec![0; 4096];
    let length = ours.recv(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(name: &str) -> (ReportSocket, PathBuf) {
        let name = format!("sluice-report-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        (ReportSocket::bind(&path).unwrap(), path)
    }

    #[test]
    fn the_kernel_says_who_reports() {
        let (socket, path) = bound("who");
        assert!(socket.receive().unwrap().is_none());
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to(b"hello", &path).unwrap();
        let received = socket.receive().unwrap().unwrap();
        assert_eq!(received.bytes, b"hello");
        assert_eq!(received.pid, std::process::id() as i32);
        received.answer("nobody listens");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_sender_that_waits_gets_its_answer() {
        let (socket, path) = bound("answer");
        let sender = std::thread::spawn(move || send_report(&path, b"report"));
        let received = loop {
            match socket.receive().unwrap() {
                Some(received) => break received,
                None => std::thread::yield_now(),
            }
        };
        received.answer("fine");
        drop(received);
        assert_eq!(sender.join().unwrap().unwrap(), "fine");
    }

    #[test]
    fn a_longer_report_is_seen_as_too_long() {
        let (socket, path) = bound("long");
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to(&[b' '; 4000], &path).unwrap();
        let received = socket.receive().unwrap().unwrap();
        assert_eq!(received.bytes.len(), MAX_REPORT_BYTES + 1);
    }

    #[test]
    fn a_socket_left_by_a_killed_agent_is_replaced() {
        let (socket, path) = bound("left");
        std::mem::forget(socket);
        let again = ReportSocket::bind(&path).unwrap();
        UnixDatagram::unbound()
            .unwrap()
            .send_to(b"x", &path)
            .unwrap();
        assert!(again.receive().unwrap().is_some());
    }

    #[test]
    fn without_an_agent_a_report_fails_at_once() {
        let error = send_report(Path::new("/nonexistent/report.sock"), b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
