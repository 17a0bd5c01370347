// SPDX-License-Identifier: GPL-2.0-or-later
//! Programs in the kernel that tell which process has got a local port (bpf/sockets.bpf.c). They
//! need a kernel that describes its types (BTF), CAP_BPF and CAP_PERFMON.

use crate::adapters::guard::attach;
use crate::adapters::kept::{Kept, name};
use crate::domain::ports::{Endpoint, Protocol};
use aya::maps::{Map, MapData, RingBuf};
use aya::programs::{FEntry, FExit};
use aya::{Btf, EbpfLoader, include_bytes_aligned};
use std::error::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/sockets.bpf.o"));
const RING: &str = "opened_sockets";
const AT_ENTRY: [&str; 1] = ["tcp_connect"];
const AT_EXIT: [&str; 2] = ["inet_csk_get_port", "udp_lib_get_port"];

/// A local port that a process has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    pub pid: i32,
    /// Of the socket; 0 if it has none, as sockets of the kernel itself.
    pub inode: u64,
    pub local: Endpoint,
}

pub struct SocketEvents {
    ring: RingBuf<MapData>,
    /// The programs are in force as long as these are held.
    links: Vec<(&'static str, OwnedFd)>,
}

impl SocketEvents {
    pub fn open(types: &Btf) -> Result<SocketEvents, Box<dyn Error>> {
        let mut programs = EbpfLoader::new().btf(Some(types)).load(OBJECT)?;
        let mut links = Vec::new();
        for name in AT_ENTRY {
            let program: &mut FEntry = found(programs.program_mut(name))?.try_into()?;
            program.load(name, types)?;
            links.push((name, attach(program.fd()?.as_fd())?));
        }
        for name in AT_EXIT {
            let program: &mut FExit = found(programs.program_mut(name))?.try_into()?;
            program.load(name, types)?;
            links.push((name, attach(program.fd()?.as_fd())?));
        }
        let ring = RingBuf::try_from(found(programs.take_map(RING))?)?;
        Ok(SocketEvents { ring, links })
    }

    /// Those of a predecessor, with what they have told since.
    pub fn of(kept: &mut Kept) -> Option<SocketEvents> {
        let ring = kept.get(&name(OBJECT, RING))?;
        let ring = RingBuf::try_from(Map::RingBuf(MapData::from_fd(ring).ok()?)).ok()?;
        let names = AT_ENTRY.into_iter().chain(AT_EXIT);
        let links = names.map(|part| Some((part, kept.get(&name(OBJECT, part))?)));
        Some(SocketEvents {
            links: links.collect::<Option<_>>()?,
            ring,
        })
    }

    pub fn parts(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let links = self.links.iter().map(|(part, link)| (*part, link.as_fd()));
        let all = std::iter::once((RING, self.as_fd())).chain(links);
        all.map(|(part, fd)| (name(OBJECT, part), fd)).collect()
    }
}

/// The sockets that are told of by now.
impl Iterator for SocketEvents {
    type Item = Opened;

    fn next(&mut self) -> Option<Opened> {
        loop {
            let item = self.ring.next()?;
            if let Some(opened) = parse(&item) {
                return Some(opened);
            }
        }
    }
}

impl AsFd for SocketEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring holds its descriptor open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

fn found<T>(part: Option<T>) -> Result<T, &'static str> {
    part.ok_or("the object lacks a part")
}

/// struct opened: inode, pid, port, protocol.
fn parse(item: &[u8]) -> Option<Opened> {
    let word = |at: usize| Some(u32::from_ne_bytes(item.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(item.get(at..at + 2)?.try_into().ok()?));
    let protocol = match i32::from(half(14)?) {
        libc::IPPROTO_TCP => Protocol::Tcp,
        libc::IPPROTO_UDP => Protocol::Udp,
        _ => return None,
    };
    Some(Opened {
        pid: i32::try_from(word(8)?).ok()?,
        inode: u64::from_ne_bytes(item.get(..8)?.try_into().ok()?),
        local: Endpoint {
            protocol,
            port: half(12)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(protocol: u16) -> Vec<u8> {
        let mut item = Vec::new();
        item.extend_from_slice(&9u64.to_ne_bytes());
        item.extend_from_slice(&77u32.to_ne_bytes());
        item.extend_from_slice(&8080u16.to_ne_bytes());
        item.extend_from_slice(&protocol.to_ne_bytes());
        item
    }

    #[test]
    fn a_port_of_tcp_or_udp_is_told_and_another_is_not() {
        let (pid, inode, port) = (77, 9, 8080);
        for (number, protocol) in [(6, Protocol::Tcp), (17, Protocol::Udp)] {
            let local = Endpoint { protocol, port };
            let opened = Opened { pid, inode, local };
            assert_eq!(parse(&told(number)), Some(opened));
        }
        assert_eq!(parse(&told(132)), None);
        for length in 0..16 {
            assert_eq!(parse(&told(6)[..length]), None);
        }
    }
}
