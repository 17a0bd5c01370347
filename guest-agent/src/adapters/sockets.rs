// SPDX-License-Identifier: GPL-2.0-or-later
//! Marks on another process's sockets. pidfd_getfd(2) gives a descriptor of
//! the same socket, on which options are set as its owner would.

use crate::domain::pace::{RoundTrip, TcpNumbers};
use crate::domain::ports::{Endpoint, Local, Protocol};
use crate::domain::tagging::SocketMarks;
use nix::sys::socket::{SockaddrStorage, getsockname};
use nix::sys::stat::fstat;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub struct ForeignProcess(OwnedFd);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// An IP socket of another process.
pub struct IpSocket {
    fd: OwnedFd,
    family: Family,
}

impl ForeignProcess {
    pub fn open(pid: i32) -> io::Result<ForeignProcess> {
        // SAFETY: takes plain integers; the result is a new descriptor of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        owned(fd).map(ForeignProcess)
    }

    /// The socket behind a descriptor if it is still that one, and is of IP.
    pub fn ip_socket(&self, descriptor: i32, inode: u64) -> io::Result<Option<IpSocket>> {
        // SAFETY: takes plain integers; the result is a new descriptor of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), descriptor, 0) };
        let fd = owned(fd)?;
        if fstat(&fd)?.st_ino != inode {
            return Err(io::ErrorKind::NotFound.into());
        }
        let family = match get(&fd, libc::SOL_SOCKET, libc::SO_DOMAIN)? {
            libc::AF_INET => Family::V4,
            libc::AF_INET6 => Family::V6,
            _ => return Ok(None),
        };
        Ok(Some(IpSocket { fd, family }))
    }
}

/// Can be read when the process has ended.
impl AsFd for ForeignProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl IpSocket {
    /// Its local port, whatever its network namespace.
    pub fn local(&self) -> io::Result<Local> {
        let protocol = match get(&self.fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? {
            libc::IPPROTO_TCP | libc::IPPROTO_MPTCP => Protocol::Tcp,
            libc::IPPROTO_UDP => Protocol::Udp,
            _ => return Ok(Local::Portless),
        };
        let address: SockaddrStorage = getsockname(self.fd.as_raw_fd())?;
        let port = match self.family {
            Family::V4 => address.as_sockaddr_in().map(|address| address.port()),
            Family::V6 => address.as_sockaddr_in6().map(|address| address.port()),
        };
        Ok(match port.unwrap_or(0) {
            0 => Local::Unbound,
            port => Local::Bound(Endpoint { protocol, port }),
        })
    }

    /// Nothing of a socket that is not of TCP, or is no connection.
    pub fn tcp_numbers(&self) -> io::Result<Option<TcpNumbers>> {
        let is_tcp = get(&self.fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_TCP;
        if !is_tcp || get(&self.fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? != 0 {
            return Ok(None);
        }
        // struct tcp_info of linux/tcp.h, of which libc's own ends before these.
        const ROUND_TRIP: usize = 68;
        const RESENT: usize = 100;
        const ACKED: usize = 120;
        const RECEIVED: usize = 128;
        const UNSENT: usize = 144;
        const LEAST_ROUND_TRIP: usize = 148;
        let mut info = [0_u8; LEAST_ROUND_TRIP + 4];
        let mut length = info.len() as libc::socklen_t;
        // SAFETY: info and length are valid for the call, length is info's size.
        let status = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        // A kernel that knows less leaves the rest zero.
        let word = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap_or_default());
        let long = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().unwrap_or_default());
        Ok(Some(TcpNumbers {
            acked_bytes: long(ACKED),
            received_bytes: long(RECEIVED),
            resent_segments: word(RESENT).into(),
            unsent_bytes: word(UNSENT).into(),
            round_trip: RoundTrip::new(word(ROUND_TRIP), word(LEAST_ROUND_TRIP)),
        }))
    }

    pub fn marks(&self) -> io::Result<SocketMarks> {
        let byte = |value: i32| (value & 0xff) as u8;
        Ok(SocketMarks {
            tos: byte(get(&self.fd, libc::IPPROTO_IP, libc::IP_TOS)?),
            traffic_class: match self.family {
                Family::V4 => None,
                Family::V6 => self.traffic_class()?,
            },
            priority: get(&self.fd, libc::SOL_SOCKET, libc::SO_PRIORITY)?,
        })
    }

    /// None of a socket of IPv6 that takes none, as MPTCP's: its IPv4 packets
    /// can have a mark all the same.
    fn traffic_class(&self) -> io::Result<Option<u8>> {
        match get(&self.fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS) {
            Ok(class) => Ok(Some((class & 0xff) as u8)),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// IPv6 sockets take both marks: they may carry mapped IPv4 packets.
    pub fn set_marks(&self, marks: SocketMarks) -> io::Result<()> {
        set(
            &self.fd,
            libc::IPPROTO_IP,
            libc::IP_TOS,
            i32::from(marks.tos),
        )?;
        if let Some(class) = marks.traffic_class {
            set(
                &self.fd,
                libc::IPPROTO_IPV6,
                libc::IPV6_TCLASS,
                i32::from(class),
            )?;
        }
        // Last, because setting the TOS changes it.
        if get(&self.fd, libc::SOL_SOCKET, libc::SO_PRIORITY)? != marks.priority {
            set(
                &self.fd,
                libc::SOL_SOCKET,
                libc::SO_PRIORITY,
                marks.priority,
            )?;
        }
        Ok(())
    }
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get(fd: &OwnedFd, level: i32, option: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: value and length are valid for the call, length is value's size.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if status == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set(fd: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: value is valid for the call and of the length given.
    let status = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            length,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
