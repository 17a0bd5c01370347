// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory that somebody else changes at any moment: a BAR of a device, or a file. Each access
//! is one volatile load or store.
//!
//! A device may be unplugged while it is mapped. Then the next access raises SIGBUS, which ends
//! a process. A handler puts zeroes in the place of such a mapping and marks it as gone, so
//! that its owner finds out and goes on.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// At a time: three of a device, and those of tests.
const MOST_MAPPINGS: usize = 32;

struct Guarded {
    /// 0: free.
    start: AtomicUsize,
    bytes: AtomicUsize,
    is_gone: AtomicBool,
}

static GUARDED: [Guarded; MOST_MAPPINGS] = [const {
    Guarded {
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        is_gone: AtomicBool::new(false),
    }
}; MOST_MAPPINGS];
static HANDLER: Once = Once::new();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

pub struct Mapping {
    /// Kept open: `flock` of it holds among programs.
    pub file: File,
    start: *mut u8,
    bytes: usize,
    guard: &'static Guarded,
}

impl Mapping {
    /// The first `bytes` of a file, which must have as many.
    pub fn open(path: &Path, bytes: usize, access: Access) -> io::Result<Mapping> {
        let is_writable = access == Access::Write;
        let file = OpenOptions::new()
            .read(true)
            .write(is_writable)
            .open(path)?;
        let length = file.metadata()?.len();
        if length < bytes as u64 {
            let text = format!("it has {length} bytes and not {bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        HANDLER.call_once(install_handler);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let guard = claim(start as usize, bytes).inspect_err(|_| {
            // SAFETY: it was made just now and nobody has it.
            unsafe { libc::munmap(start, bytes) };
        })?;
        Ok(Mapping {
            file,
            start: start.cast(),
            bytes,
            guard,
        })
    }

    /// The memory is no more: what was read since is 0.
    pub fn is_gone(&self) -> bool {
        self.guard.is_gone.load(Ordering::SeqCst)
    }

    pub fn u8(&self, offset: usize) -> u8 {
        self.load(offset)
    }

    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_le(self.load(offset))
    }

    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_le(self.load(offset))
    }

    /// Puts 0 there, and gives back what was there: in one step, whoever else writes.
    pub fn take_u64(&self, offset: usize) -> u64 {
        let place = self.place::<u64>(offset);
        // SAFETY: `place` checks the bounds and the alignment; the mapping outlives the use.
        let word = unsafe { AtomicU64::from_ptr(place) };
        u64::from_le(word.swap(0, Ordering::SeqCst))
    }

    pub fn bytes(&self, offset: usize, count: usize) -> Vec<u8> {
        (offset..offset + count).map(|at| self.u8(at)).collect()
    }

    pub fn set_u8(&self, offset: usize, value: u8) {
        self.store(offset, value);
    }

    pub fn set_u16(&self, offset: usize, value: u16) {
        self.store(offset, value.to_le());
    }

    pub fn set_u32(&self, offset: usize, value: u32) {
        self.store(offset, value.to_le());
    }

    pub fn set_u64(&self, offset: usize, value: u64) {
        self.store(offset, value.to_le());
    }

    fn load<T: Copy>(&self, offset: usize) -> T {
        // SAFETY: `place` checks the bounds and the alignment; any bits are a number.
        unsafe { self.place::<T>(offset).read_volatile() }
    }

    fn store<T: Copy>(&self, offset: usize, value: T) {
        // SAFETY: as above. Only mappings of `Access::Write` are written.
        unsafe { self.place::<T>(offset).write_volatile(value) }
    }

    fn place<T>(&self, offset: usize) -> *mut T {
        let size = size_of::<T>();
        assert!(
            offset % size == 0
                && offset
                    .checked_add(size)
                    .is_some_and(|end| end <= self.bytes),
            "offset {offset:#x} is outside of {:#x} bytes, or unaligned",
            self.bytes
        );
        // SAFETY: within the mapping, as was checked.
        unsafe { self.start.add(offset).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own, and is not used any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
        self.guard.start.store(0, Ordering::SeqCst);
    }
}

/// All that was stored before is seen before all that is stored after.
pub fn in_order() {
    fence(Ordering::SeqCst);
}

fn claim(start: usize, bytes: usize) -> io::Result<&'static Guarded> {
    for guard in &GUARDED {
        let order = Ordering::SeqCst;
        // Taken with an address that no mapping has, until its length is there.
        if guard
            .start
            .compare_exchange(0, usize::MAX, order, order)
            .is_ok()
        {
            guard.bytes.store(bytes, order);
            guard.is_gone.store(false, order);
            guard.start.store(start, order);
            return Ok(guard);
        }
    }
    Err(io::Error::other(format!(
        "more than {MOST_MAPPINGS} mappings"
    )))
}

fn install_handler() {
    let action = SigAction::new(
        SigHandler::SigAction(on_bus_error),
        SaFlags::SA_SIGINFO,
        SigSet::empty(),
    );
    // SAFETY: the handler calls mmap(2) and sigaction(2) alone, and atomics.
    if let Err(error) = unsafe { sigaction(Signal::SIGBUS, &action) } {
        // The kernel refuses no valid signal.
        panic!("sigaction: {error}");
    }
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure, of a fault.
    let address = unsafe { (*info).si_addr() } as usize;
    for guard in &GUARDED {
        let start = guard.start.load(Ordering::SeqCst);
        let bytes = guard.bytes.load(Ordering::SeqCst);
        if start == 0 || address < start || address - start >= bytes {
            continue;
        }
        // SAFETY: it replaces a mapping of ours by zeroes; its owner goes on using it.
        let zeroes = unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if zeroes != libc::MAP_FAILED {
            guard.is_gone.store(true, Ordering::SeqCst);
            return;
        }
    }
    // Some other fault: the access is tried again and ends the process, as ever.
    // SAFETY: the default action is a valid one.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file(name: &str, bytes: u64) -> (PathBuf, File) {
        let path = std::env::temp_dir().join(format!("sluice-map-{name}-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        file.set_len(bytes).unwrap();
        (path, file)
    }

    #[test]
    fn numbers_are_stored_little_endian() {
        let (path, _) = file("numbers", 4096);
        let mapping = Mapping::open(&path, 4096, Access::Write).unwrap();
        mapping.set_u32(4, 0x0102_0304);
        mapping.set_u64(8, 5);
        mapping.set_u8(16, 7);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(bytes[..8], [0, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(
            (mapping.u64(8), mapping.u8(16), mapping.u32(4)),
            (5, 7, 0x0102_0304)
        );
        assert_eq!(mapping.bytes(4, 2), [4, 3]);
        assert_eq!((mapping.take_u64(8), mapping.u64(8)), (5, 0));
        assert!(!mapping.is_gone());
    }

    #[test]
    fn memory_that_goes_away_reads_as_zero_and_ends_nothing() {
        let (path, file) = file("gone", 8192);
        let mapping = Mapping::open(&path, 8192, Access::Write).unwrap();
        let other = Mapping::open(&path, 4096, Access::Write).unwrap();
        mapping.set_u32(4096, 9);
        file.set_len(4096).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(mapping.u32(4096), 0);
        assert!(mapping.is_gone());
        mapping.set_u32(4096, 3);
        other.set_u32(0, 4);
        assert!(!other.is_gone(), "one mapping's loss is not another one's");
    }

    #[test]
    fn a_file_too_short_is_refused() {
        let (path, _) = file("short", 100);
        let error = Mapping::open(&path, 4096, Access::Read).err().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.to_string(), "it has 100 bytes and not 4096");
    }

    #[test]
    #[should_panic = "outside"]
    fn an_access_beyond_the_end_is_refused() {
        let (path, _) = file("beyond", 4096);
        let mapping = Mapping::open(&path, 4096, Access::Read);
        std::fs::remove_file(&path).unwrap();
        mapping.unwrap().u32(4096);
    }
}
