// SPDX-License-Identifier: GPL-2.0-or-later
//! A program's end of a subscription, and the program's own view of it: a socket that can be
//! read once for each event. The agent has one end, the program the other.

use super::report::{Passed, send_with};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socketpair, sockopt,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

pub const DEFAULT_PATH: &str = "/run/sluice-agent/events.sock";
/// For some dozens of events that a program has not read.
const SEND_BUFFER_BYTES: usize = 32 * 1024;
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

pub struct Subscriber(Passed);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Yes,
    /// The program has not read what there was.
    No,
    Gone,
}

impl Subscriber {
    /// Whatever size the program had chosen, the kernel keeps no more than this for it.
    pub fn new(end: Passed) -> io::Result<Subscriber> {
        setsockopt(&end, sockopt::SndBuf, &SEND_BUFFER_BYTES)?;
        Ok(Subscriber(end))
    }

    /// Never waits.
    pub fn tell(&self, bytes: &[u8]) -> Told {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(self.0.as_fd().as_raw_fd(), bytes, flags) {
            Ok(_) => Told::Yes,
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => Told::No,
            Err(_) => Told::Gone,
        }
    }
}

impl AsFd for Subscriber {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Which of these can be read, or have ended.
pub fn ready(files: &[BorrowedFd<'_>]) -> io::Result<Vec<bool>> {
    let mut fds: Vec<PollFd> = files
        .iter()
        .map(|file| PollFd::new(*file, PollFlags::POLLIN))
        .collect();
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
    Ok(fds.iter().map(is_ready).collect())
}

/// The program's end, after the agent has answered.
pub struct Subscription(OwnedFd);

/// Asks the agent at `path`; its answer is a JSON object.
pub fn subscribe(path: &Path, request: &[u8]) -> io::Result<(Subscription, String)> {
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    send_with(path, request, &theirs)?;
    drop(theirs);
    let subscription = Subscription(ours);
    let within = PollTimeout::try_from(ANSWER_WITHIN).unwrap_or(PollTimeout::MAX);
    if !subscription.wait(&[], within)? {
        let text = "the agent has not answered within 10 s";
        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
    }
    let answer = subscription.next()?.unwrap_or_default();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok((subscription, answer))
}

impl Subscription {
    /// Waits for the next message or for one of `others`. False if nothing came in time.
    pub fn wait(&self, others: &[BorrowedFd<'_>], within: PollTimeout) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        fds.extend(
            others
                .iter()
                .map(|other| PollFd::new(*other, PollFlags::POLLIN)),
        );
        match poll(&mut fds, within) {
            Ok(count) => Ok(count > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The next message; nothing if the agent has ended the subscription.
    pub fn next(&self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; 4096];
        let length = match recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
            Ok(length) => length,
            Err(Errno::ECONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        bytes.truncate(length);
        Ok((length > 0).then_some(bytes))
    }
}

/// Sends a real-time signal with its value, as this user may.
pub fn queue_signal(pid: i32, signal: i32, value: u64) -> io::Result<()> {
    let value = libc::sigval {
        sival_ptr: value as usize as *mut libc::c_void,
    };
    // SAFETY: takes plain values; the pointer is a number and nobody follows it.
    match unsafe { libc::sigqueue(pid, signal, value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
