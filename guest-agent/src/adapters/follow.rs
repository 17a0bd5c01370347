// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's proc connector: a message by netlink for each fork, exec, change of user and
//! exit. It is there in the first namespaces only (network, users, processes), and for
//! CAP_NET_ADMIN. A filter in the kernel passes messages of processes and leaves out those of
//! threads.

use crate::domain::follow::ProcessEvent;
use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_MISC, BPF_RET, BPF_TAX, BPF_W, BPF_X,
    PROC_EVENT_EXEC, PROC_EVENT_EXIT, PROC_EVENT_FORK, PROC_EVENT_NONE, PROC_EVENT_UID,
};
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, recv, send, setsockopt, sockopt};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// As in linux/netlink.h and linux/connector.h.
const NETLINK_CONNECTOR: i32 = 11;
const NLMSG_DONE: u16 = 3;
const CN_VAL_PROC: u32 = 1;

/// Room for some thousand messages that wait.
const RECEIVE_BYTES: usize = 4 << 20;
/// A message, each with place for what later kernels add: struct nlmsghdr (16 bytes),
/// struct cn_msg (20), struct proc_event (40).
const MESSAGE_BYTES: usize = 256;
const WHAT: usize = 36;
const DATA: usize = 52;

pub struct Connector {
    socket: OwnedFd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The answer to the wish to hear: 0, or the number of an error.
    Answer(i32),
    Event(ProcessEvent),
}

impl Connector {
    /// Asks to hear; the answer is the first message.
    pub fn open() -> io::Result<Connector> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes plain integers.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_CONNECTOR) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was made just now and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        attach_filter(&socket)?;
        // With less room an overrun comes sooner.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BYTES);
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, libc::CN_IDX_PROC))?;
        send(socket.as_raw_fd(), &wish_to_hear(), MsgFlags::empty())?;
        Ok(Connector { socket })
    }

    /// The next message, or nothing. The error ENOBUFS says that messages are lost.
    pub fn next(&self) -> io::Result<Option<Message>> {
        let mut bytes = [0; MESSAGE_BYTES];
        loop {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                Ok(length) => {
                    if let Some(message) = parse(&bytes[..length]) {
                        return Ok(Some(message));
                    }
                }
                Err(nix::errno::Errno::EAGAIN) => return Ok(None),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn wish_to_hear() -> Vec<u8> {
    const LENGTH: u32 = 16 + 20 + size_of::<u32>() as u32;
    let mut message = Vec::with_capacity(LENGTH as usize);
    let mut put = |bytes: &[u8]| message.extend_from_slice(bytes);
    // struct nlmsghdr: length, type, flags, sequence, port.
    put(&LENGTH.to_ne_bytes());
    put(&NLMSG_DONE.to_ne_bytes());
    put(&[0; 10]);
    // struct cn_msg: idx, val, seq, ack, length, flags; then the wish.
    put(&libc::CN_IDX_PROC.to_ne_bytes());
    put(&CN_VAL_PROC.to_ne_bytes());
    put(&[0; 8]);
    put(&(size_of::<u32>() as u16).to_ne_bytes());
    put(&[0; 2]);
    put(&libc::PROC_CN_MCAST_LISTEN.to_ne_bytes());
    message
}

fn parse(message: &[u8]) -> Option<Message> {
    let word = |at: usize| {
        let bytes = message.get(at..at + 4)?;
        Some(i32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let what = word(WHAT)? as u32;
    let data = |number: usize| word(DATA + 4 * number);
    Some(if what == PROC_EVENT_NONE {
        Message::Answer(data(0)?)
    } else if what == PROC_EVENT_FORK {
        // Threads of the parent and the child come first, then their processes.
        Message::Event(ProcessEvent::Fork {
            parent: data(1)?,
            child: data(3)?,
        })
    } else if what == PROC_EVENT_EXEC || what == PROC_EVENT_UID {
        Message::Event(ProcessEvent::Changed(data(1)?))
    } else if what == PROC_EVENT_EXIT {
        Message::Event(ProcessEvent::Exit(data(1)?))
    } else {
        return None;
    })
}

/// Lets answers, execs and changes of user pass, and forks and exits of whole processes: of
/// those, thread id and process id are equal.
fn filter() -> Vec<libc::sock_filter> {
    let code = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = |at: usize| code(BPF_LD | BPF_W | BPF_ABS, at as u32, 0, 0);
    // A load takes the bytes in network order.
    let jump_if = |what: u32, jt: u8| code(BPF_JMP | BPF_JEQ | BPF_K, what.to_be(), jt, 0);
    let end = |length: u32| code(BPF_RET | BPF_K, length, 0, 0);
    let equal = |first: usize, jt: u8| {
        [
            load(DATA + 4 * first),
            code(BPF_MISC | BPF_TAX, 0, 0, 0),
            load(DATA + 4 * (first + 1)),
            code(BPF_JMP | BPF_JEQ | BPF_X, 0, jt, 0),
            end(0),
        ]
    };
    let mut program = vec![
        load(WHAT),
        jump_if(PROC_EVENT_FORK, 5),
        jump_if(PROC_EVENT_EXIT, 9),
        jump_if(PROC_EVENT_EXEC, 13),
        jump_if(PROC_EVENT_UID, 12),
        jump_if(PROC_EVENT_NONE, 11),
        end(0),
    ];
    program.extend(equal(2, 6));
    program.extend(equal(0, 1));
    program.push(end(u32::MAX));
    program
}

fn attach_filter(socket: &OwnedFd) -> io::Result<()> {
    let mut program = filter();
    let described = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the description and the program that it points to are valid for the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const described).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    /// The messages until one that is asked for.
    fn until(connector: &Connector, is_last: impl Fn(Message) -> bool) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            match connector.next().unwrap() {
                Some(message) => {
                    messages.push(message);
                    if is_last(message) {
                        return messages;
                    }
                }
                None => {
                    let mut fds = [PollFd::new(connector.as_fd(), PollFlags::POLLIN)];
                    let count = poll(&mut fds, PollTimeout::from(60_000u16)).unwrap();
                    assert!(count > 0, "not in time; {messages:?}");
                }
            }
        }
    }

    /// As the connector of the kernel is, so is this test: of processes, of root.
    #[test]
    fn a_process_is_told_from_its_birth_to_its_end_and_a_thread_is_not() {
        let connector = Connector::open().unwrap();
        let answers = until(&connector, |message| matches!(message, Message::Answer(_)));
        assert_eq!(answers.last(), Some(&Message::Answer(0)));
        let parent = std::process::id() as i32;
        std::thread::spawn(|| {}).join().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        child.wait().unwrap();
        let end = Message::Event(ProcessEvent::Exit(pid));
        let told = until(&connector, |message| message == end);
        let child = pid;
        let events = [
            ProcessEvent::Fork { parent, child },
            ProcessEvent::Changed(pid),
        ];
        for event in events {
            let count = told.iter().filter(|&&m| m == Message::Event(event));
            assert_eq!(count.count(), 1, "{event:?} in {told:?}");
        }
        // Threads are told by their own ids, or as a fork of a process to itself.
        let itself = ProcessEvent::Fork {
            parent,
            child: parent,
        };
        assert!(!told.contains(&Message::Event(itself)), "{told:?}");
    }

    #[test]
    fn a_message_that_is_cut_says_nothing() {
        for length in 0..DATA {
            assert_eq!(parse(&vec![0; length]), None, "{length}");
        }
    }
}
