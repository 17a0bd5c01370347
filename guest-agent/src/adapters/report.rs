// SPDX-License-Identifier: GPL-2.0-or-later
//! The socket to which programs send reports: one datagram each. The kernel tells who sent it.
//! A sender that wants an answer passes the end of a socket pair along.
//!
//! Any user may pass any descriptors. All that the kernel can pass are taken, as it would leave
//! some of a message that is cut in this process. Closing a descriptor may take for ever (a
//! connection that lingers, a file of FUSE), and with a socket of Unix all that waits in it is
//! closed, so a thread of its own closes them. Only a socket that leads to no named one is
//! answered: as a message of root, an answer would count where its sender may not send.

use crate::domain::report::MAX_REPORT_BYTES;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::sockopt::{self, PassCred};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockType, UnixAddr, UnixCredentials,
    getpeername, getsockopt, recvmsg, send, sendmsg, setsockopt,
};
use std::cell::OnceCell;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

pub const DEFAULT_PATH: &str = "/run/sluice-agent/report.sock";
/// A busy guest's agent may take its time.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A list of all that is shaped.
const MOST_ANSWER_BYTES: usize = 128 * 1024;
/// The kernel's SCM_MAX_FD.
const MOST_DESCRIPTORS: usize = 253;
/// Descriptors that wait to be closed; beyond that none is taken.
const MOST_WAITING: usize = 64;

pub struct ReportSocket {
    socket: UnixDatagram,
    path: PathBuf,
    /// Started when a sender passes something.
    closer: OnceCell<Closer>,
}

/// A thread that closes descriptors of others.
#[derive(Debug, Clone)]
struct Closer {
    queue: Sender<OwnedFd>,
    /// Not closed yet.
    waiting: Arc<AtomicUsize>,
}

impl Closer {
    fn start() -> io::Result<Closer> {
        let (queue, received) = channel::<OwnedFd>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        // The process's signals are for the thread that waits for them.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let started = std::thread::Builder::new().spawn(move || {
            for descriptor in received {
                drop(descriptor);
                left.fetch_sub(1, Ordering::SeqCst);
            }
        });
        mask.thread_set_mask()?;
        started?;
        Ok(Closer { queue, waiting })
    }

    fn close(&self, descriptor: OwnedFd) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // The thread ends after all of its senders.
        let _ = self.queue.send(descriptor);
    }
}

/// A descriptor of somebody else's, which the thread closes.
#[derive(Debug)]
pub struct Passed {
    descriptor: ManuallyDrop<OwnedFd>,
    closer: Closer,
}

impl AsFd for Passed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        self.closer.close(descriptor);
    }
}

#[derive(Debug)]
pub struct Received {
    pub bytes: Vec<u8>,
    pub pid: i32,
    pub uid: u32,
    answer_to: Option<Passed>,
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
            closer: OnceCell::new(),
        })
    }

    /// The error is that no thread could be started.
    fn closer(&self) -> io::Result<Closer> {
        if let Some(closer) = self.closer.get() {
            return Ok(closer.clone());
        }
        let closer = Closer::start()?;
        Ok(self.closer.get_or_init(|| closer).clone())
    }

    /// Whether descriptors that senders passed do not close: no report is to be taken.
    pub fn is_stuck(&self) -> bool {
        let closer = self.closer.get();
        closer.is_some_and(|closer| closer.waiting.load(Ordering::SeqCst) >= MOST_WAITING)
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
        let mut answer_to = None;
        if !passed.is_empty() {
            // Without the thread they are closed here.
            let closer = self.closer()?;
            let passed = passed.into_iter().map(|descriptor| Passed {
                descriptor: ManuallyDrop::new(descriptor),
                closer: closer.clone(),
            });
            let passed: Vec<Passed> = passed.collect();
            answer_to = passed.into_iter().find(|passed| {
                is_unix_socket(&passed.descriptor) && leads_to_no_name(&passed.descriptor)
            });
        }
        Ok(Some(Received {
            bytes,
            pid,
            uid,
            answer_to,
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
    /// The sender's end for more than one answer: a sequenced-packet socket, where messages
    /// keep their bounds and the closing shows.
    pub fn take_subscriber(&mut self) -> Option<Passed> {
        let is_apt = |end: &Passed| {
            let kind = getsockopt(end, sockopt::SockType);
            kind.is_ok_and(|kind| kind == SockType::SeqPacket)
        };
        self.answer_to.take_if(|end| is_apt(end))
    }

    /// Answers a sender that wants it; one that does not listen is not waited for.
    pub fn answer(&self, text: &str) {
        if let Some(to) = &self.answer_to {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(to.descriptor.as_raw_fd(), text.as_bytes(), flags);
        }
    }
}

/// Asks the socket layer alone: a file system may not answer.
fn is_unix_socket(descriptor: &OwnedFd) -> bool {
    let mut domain: libc::c_int = 0;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one integer at most, for which there is room.
    let status = unsafe {
        libc::getsockopt(
            descriptor.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut domain).cast(),
            &raw mut bytes,
        )
    };
    status == 0 && domain == libc::AF_UNIX
}

fn leads_to_no_name(socket: &OwnedFd) -> bool {
    getpeername::<UnixAddr>(socket.as_raw_fd())
        .is_ok_and(|peer| peer.path().is_none() && peer.as_abstract().is_none())
}

/// Sends a report and waits for the agent's answer.
pub fn send_report(path: &Path, report: &[u8]) -> io::Result<String> {
    let (ours, theirs) = UnixDatagram::pair()?;
    ours.set_read_timeout(Some(ANSWER_WITHIN))?;
    send_with(path, report, &theirs)?;
    drop(theirs);
    let mut answer = vec![0; MOST_ANSWER_BYTES];
    let length = ours.recv(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

/// Sends a datagram and passes the end of a socket along.
pub fn send_with(path: &Path, text: &[u8], end: &impl AsRawFd) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    let descriptors = [end.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let slices = [IoSlice::new(text)];
    sendmsg::<()>(
        socket.as_raw_fd(),
        &slices,
        &rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
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

    fn pass(path: &Path, descriptors: &[RawFd]) {
        let sender = UnixDatagram::unbound().unwrap();
        sender.connect(path).unwrap();
        let rights = [ControlMessage::ScmRights(descriptors)];
        let slices = [IoSlice::new(b"x")];
        let flags = MsgFlags::empty();
        sendmsg::<()>(sender.as_raw_fd(), &slices, &rights, flags, None).unwrap();
    }

    #[test]
    fn descriptors_of_senders_are_all_closed() {
        let (socket, path) = bound("descriptors");
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let mut reader = fs::File::from(reader);
        pass(&path, &[writer.as_raw_fd(); MOST_DESCRIPTORS]);
        drop(writer);
        let received = socket.receive().unwrap().unwrap();
        received.answer("to no socket");
        drop(received);
        let mut bytes = Vec::new();
        let (done, is_done) = channel();
        std::thread::spawn(move || done.send(io::Read::read_to_end(&mut reader, &mut bytes)));
        let within = Duration::from_secs(60);
        let length = is_done.recv_timeout(within).expect("some are still open");
        assert_eq!(length.unwrap(), 0);
    }

    /// A connection that takes ten hours to close.
    fn lingering() -> (std::net::TcpStream, std::net::TcpListener) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let lingers = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // More than the buffers hold, and nobody reads.
        lingers.set_nonblocking(true).unwrap();
        while io::Write::write(&mut &lingers, &[0; 65_536]).is_ok() {}
        let hours = libc::linger {
            l_onoff: 1,
            l_linger: 36_000,
        };
        setsockopt(&lingers, nix::sys::socket::sockopt::Linger, &hours).unwrap();
        lingers.set_nonblocking(false).unwrap();
        (lingers, listener)
    }

    #[test]
    fn what_waits_in_a_passed_socket_keeps_nobody_when_it_is_closed() {
        use nix::sys::socket::{AddressFamily, SockFlag, socketpair};
        for kind in [SockType::Datagram, SockType::SeqPacket] {
            let (socket, path) = bound(&format!("queue-{kind:?}"));
            let (lingers, _listener) = lingering();
            let flags = SockFlag::SOCK_CLOEXEC;
            let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, flags).unwrap();
            let descriptors = [lingers.as_raw_fd()];
            let rights = [ControlMessage::ScmRights(&descriptors)];
            let slices = [IoSlice::new(b"x")];
            let flags = MsgFlags::empty();
            sendmsg::<()>(ours.as_raw_fd(), &slices, &rights, flags, None).unwrap();
            pass(&path, &[theirs.as_raw_fd()]);
            drop((lingers, theirs));
            let (done, is_done) = channel();
            std::thread::spawn(move || {
                let mut received = socket.receive().unwrap().unwrap();
                drop(received.take_subscriber());
                drop(received);
                done.send(()).unwrap();
            });
            let found = is_done.recv_timeout(Duration::from_secs(30));
            assert_eq!(found, Ok(()), "{kind:?}: the thread that receives waits");
        }
    }

    #[test]
    fn a_descriptor_that_does_not_close_keeps_the_thread_of_nobody_else() {
        let (socket, path) = bound("lingers");
        let (lingers, _listener) = lingering();
        pass(&path, &[lingers.as_raw_fd()]);
        drop(lingers);
        let (_reader, writer) = nix::unistd::pipe().unwrap();
        pass(&path, &[writer.as_raw_fd(); MOST_WAITING]);
        let (done, is_done) = channel();
        std::thread::spawn(move || {
            drop(socket.receive());
            let was_stuck = socket.is_stuck();
            drop(socket.receive());
            done.send((was_stuck, socket.is_stuck())).unwrap();
        });
        let found = is_done.recv_timeout(Duration::from_secs(60));
        assert_eq!(found, Ok((false, true)), "the thread that receives waits");
    }

    #[test]
    fn no_named_socket_is_answered() {
        let (socket, path) = bound("deputy");
        let named = path.with_extension("named");
        let stranger = UnixDatagram::bind(&named).unwrap();
        stranger.set_nonblocking(true).unwrap();
        let leads_there = UnixDatagram::unbound().unwrap();
        leads_there.connect(&named).unwrap();
        pass(&path, &[leads_there.as_raw_fd()]);
        socket.receive().unwrap().unwrap().answer("as root");
        fs::remove_file(&named).unwrap();
        let error = stranger.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
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
