// SPDX-License-Identifier: GPL-2.0-or-later
//! Descriptors that the service manager keeps for the next agent, while a killed one is away
//! (sd_notify(3), FDSTORE). It gives them to no agent but the next, and closes them when the
//! service is stopped. Without a service manager none is kept.

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};
use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

const FIRST: RawFd = 3;

/// The line to the service manager, and the descriptors of a predecessor.
#[derive(Default)]
pub struct Kept {
    manager: Option<OsString>,
    /// Of all that were given.
    names: Vec<String>,
    /// That nobody has taken.
    descriptors: HashMap<String, OwnedFd>,
}

impl Kept {
    /// The descriptors that the service manager has given to this process.
    ///
    /// # Safety
    ///
    /// To be called once, before the process has other descriptors than the standard ones and
    /// those that it was given.
    pub unsafe fn take() -> Kept {
        let told = |name| std::env::var(name).unwrap_or_default();
        let is_for_this = told("LISTEN_PID") == std::process::id().to_string();
        let names = if is_for_this {
            names(&told("LISTEN_FDS"), &told("LISTEN_FDNAMES"))
        } else {
            Vec::new()
        };
        let descriptors = names.iter().zip(FIRST..).map(|(name, fd)| {
            // SAFETY: the service manager has opened it for this process, and nobody else owns it.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            (name.clone(), fd)
        });
        Kept {
            descriptors: descriptors.collect(),
            names,
            manager: std::env::var_os("NOTIFY_SOCKET"),
        }
    }

    /// The descriptor of a predecessor.
    pub fn get(&mut self, name: &str) -> Option<OwnedFd> {
        self.descriptors.remove(name)
    }

    /// Gives all back, as of another version of this agent.
    pub fn drop_all(&mut self) {
        self.descriptors.clear();
        for name in std::mem::take(&mut self.names) {
            self.forget(&name);
        }
    }

    /// A successor has this. It is of help alone: without it a successor makes its own.
    pub fn keep(&self, name: &str, fd: BorrowedFd) {
        let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
        let _ = self.tell(&text, &[fd.as_raw_fd()]);
    }

    /// A successor has it no longer.
    pub fn forget(&self, name: &str) {
        let _ = self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]);
    }

    fn tell(&self, text: &str, descriptors: &[RawFd]) -> io::Result<()> {
        let Some(path) = &self.manager else {
            return Ok(());
        };
        let address = match path.as_bytes() {
            [b'@', name @ ..] => UnixAddr::new_abstract(name)?,
            path => UnixAddr::new(path)?,
        };
        let kind = (AddressFamily::Unix, SockType::Datagram);
        let line = socket(kind.0, kind.1, SockFlag::SOCK_CLOEXEC, None)?;
        let rights = [ControlMessage::ScmRights(descriptors)];
        let rights = if descriptors.is_empty() {
            &[][..]
        } else {
            &rights
        };
        let slices = [IoSlice::new(text.as_bytes())];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg(line.as_raw_fd(), &slices, rights, flags, Some(&address))?;
        Ok(())
    }
}

/// Of a part of a compiled object: an agent with another object has another name for it.
pub fn name(object: &[u8], part: &str) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(object);
    format!("{part}-{:016x}", hasher.finish())
}

/// Of so many descriptors. One without a name cannot be asked for.
fn names(count: &str, names: &str) -> Vec<String> {
    let count: usize = count.parse().unwrap_or(0);
    let names = names.split(':').map(str::to_owned);
    names
        .chain(std::iter::repeat(String::new()))
        .take(count)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessageOwned, recvmsg};
    use std::io::IoSliceMut;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn every_descriptor_has_its_own_name() {
        assert_eq!(names("2", "a:b"), ["a", "b"]);
        assert_eq!(names("3", "a"), ["a", "", ""]);
        assert_eq!(names("1", "a:b"), ["a"]);
        assert_eq!(names("", "a"), [""; 0]);
    }

    #[test]
    fn the_manager_is_told_what_to_keep_and_what_not() {
        let path = std::env::temp_dir().join(format!("sluice-kept-{}", std::process::id()));
        let manager = UnixDatagram::bind(&path).unwrap();
        let (given, _other) = UnixDatagram::pair().unwrap();
        let mut kept = Kept {
            manager: Some(path.clone().into()),
            names: vec!["old".into()],
            descriptors: HashMap::from([("old".into(), given.try_clone().unwrap().into())]),
        };
        kept.keep("ring", given.as_fd());
        let mut text = [0; 100];
        let mut space = nix::cmsg_space!([RawFd; 2]);
        let mut slices = [IoSliceMut::new(&mut text)];
        let flags = MsgFlags::empty();
        let message = recvmsg::<()>(manager.as_raw_fd(), &mut slices, Some(&mut space), flags);
        let message = message.unwrap();
        let rights = message.cmsgs().unwrap().next().unwrap();
        assert!(matches!(rights, ControlMessageOwned::ScmRights(fds) if fds.len() == 1));
        let length = message.bytes;
        assert_eq!(&text[..length], b"FDSTORE=1\nFDPOLL=0\nFDNAME=ring");
        assert!(kept.get("new").is_none());
        assert!(kept.get("old").is_some());
        kept.drop_all();
        let length = manager.recv(&mut text).unwrap();
        assert_eq!(&text[..length], b"FDSTOREREMOVE=1\nFDNAME=old");
        std::fs::remove_file(path).unwrap();
    }
}
