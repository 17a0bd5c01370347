// SPDX-License-Identifier: GPL-2.0-or-later
//! The TCP sockets that listen in this program's network namespace, by the kernel's socket
//! diagnosis (sock_diag(7)). /proc/net/tcp has no length of the accept queue, and lists all
//! connections.

use crate::domain::servers::Listener;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use std::io;
use std::os::fd::AsRawFd;

/// As in linux/sock_diag.h and net/tcp_states.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP_LISTEN: u32 = 10;
/// struct nlmsghdr, and struct inet_diag_req_v2 and inet_diag_msg behind it.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const ANSWER_BYTES: usize = 72;
const SOURCE_PORT: usize = 4;
/// Of a listener: connections in the accept queue, and its length.
const RQUEUE: usize = 56;
const WQUEUE: usize = 60;
const INODE: usize = 68;
/// The kernel fills at most so much at a time.
const RECEIVE_BYTES: usize = 32 * 1024;

/// Those that are wanted: there may be very many. An error if the kernel has no socket diagnosis
/// (module inet_diag).
pub fn listeners(is_wanted: impl Fn(&Listener) -> bool) -> io::Result<Vec<Listener>> {
    let mut found = Vec::new();
    let mut take_one = |one: Listener| {
        if is_wanted(&one) {
            found.push(one);
        }
    };
    for family in [libc::AF_INET, libc::AF_INET6] {
        dump(family as u8, &mut take_one)?;
    }
    Ok(found)
}

fn dump(family: u8, found: &mut impl FnMut(Listener)) -> io::Result<()> {
    let line = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    send(line.as_raw_fd(), &request(family), MsgFlags::empty())?;
    let mut bytes = vec![0; RECEIVE_BYTES];
    loop {
        let length = recv(line.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        if length == 0 || take(&bytes[..length], found)? {
            return Ok(());
        }
    }
}

fn request(family: u8) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    let mut put = |bytes: &[u8]| message.extend_from_slice(bytes);
    // struct nlmsghdr: length, type, flags, sequence, port.
    put(&((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    put(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    put(&[0; 8]);
    // struct inet_diag_req_v2: family, protocol, extensions, padding, states, socket.
    put(&[family, libc::IPPROTO_TCP as u8, 0, 0]);
    put(&(1_u32 << TCP_LISTEN).to_ne_bytes());
    put(&[0; 48]);
    message
}

/// Takes the messages of a datagram; whether they were the last.
fn take(mut bytes: &[u8], found: &mut impl FnMut(Listener)) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (word(bytes, 0), half(bytes, 4)) {
        let length = length as usize;
        if length < HEADER_BYTES || length > bytes.len() {
            break;
        }
        let body = &bytes[HEADER_BYTES..length];
        match i32::from(kind) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let number = word(body, 0).map_or(libc::EINVAL, |code| -(code as i32));
                return Err(io::Error::from_raw_os_error(number));
            }
            _ => listener(body).into_iter().for_each(&mut *found),
        }
        bytes = &bytes[(length.next_multiple_of(4)).min(bytes.len())..];
    }
    Ok(false)
}

fn listener(body: &[u8]) -> Option<Listener> {
    let body = body.get(..ANSWER_BYTES)?;
    let port = &body[SOURCE_PORT..SOURCE_PORT + 2];
    Some(Listener {
        port: u16::from_be_bytes([port[0], port[1]]),
        inode: u64::from(word(body, INODE)?),
        queued: word(body, RQUEUE)?,
        queue_max: word(body, WQUEUE)?,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{Backlog, listen};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    /// The queue of a listener is asked for until it holds as many.
    fn queued(address: &str, count: u32) -> Listener {
        let server = TcpListener::bind(address).unwrap();
        listen(&server, Backlog::new(5).unwrap()).unwrap();
        let own = std::fs::metadata(format!("/proc/self/fd/{}", server.as_raw_fd())).unwrap();
        let _waiting: Vec<TcpStream> = (0..count)
            .map(|_| TcpStream::connect(server.local_addr().unwrap()).unwrap())
            .collect();
        let look = || {
            let all = listeners(|one| one.inode == own.ino()).unwrap();
            assert_eq!(all.len(), 1);
            all[0]
        };
        // A connection is there for its maker before the last segment is in the queue.
        let mut found = look();
        while found.queued < count {
            std::thread::yield_now();
            found = look();
        }
        assert_eq!(found.port, server.local_addr().unwrap().port());
        found
    }

    #[test]
    fn a_listener_tells_its_queue_and_the_room_in_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let found = queued(address, 3);
            assert_eq!((found.queued, found.queue_max), (3, 5), "{address}");
        }
    }

    #[test]
    fn a_refusal_is_an_error_and_a_cut_message_is_no_listener() {
        let mut refusal = Vec::new();
        refusal.extend_from_slice(&20_u32.to_ne_bytes());
        refusal.extend_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        refusal.extend_from_slice(&[0; 10]);
        refusal.extend_from_slice(&(-libc::ENOENT).to_ne_bytes());
        let error = take(&refusal, &mut |_| ()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        for length in 0..ANSWER_BYTES {
            assert_eq!(listener(&vec![0; length]), None);
        }
        assert!(!take(&[255; 24], &mut |_| ()).unwrap());
    }
}
