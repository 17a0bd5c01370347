// SPDX-License-Identifier: GPL-2.0-or-later
//! I/O priorities of threads (ioprio_get(2), ioprio_set(2)).

use crate::domain::tag::Tag;
use std::io;

const WHO_PROCESS: libc::c_int = 1;
pub const TAGS_WITHOUT_HINT: u8 = 7;

pub fn get(tid: i32) -> io::Result<u16> {
    // SAFETY: takes and returns plain integers.
    let value = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, tid) };
    if value < 0 {
        return Err(io::Error::last_os_error());
    }
    u16::try_from(value).map_err(io::Error::other)
}

pub fn set(tid: i32, value: u16) -> io::Result<()> {
    // SAFETY: takes and returns plain integers.
    let status = unsafe {
        libc::syscall(
            libc::SYS_ioprio_set,
            WHO_PROCESS,
            tid,
            libc::c_int::from(value),
        )
    };
    if status < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The highest tag this kernel carries, found by trying on ourselves: hints
/// came with Linux 6.5. Fails without the right to set real-time priorities.
pub fn probe_max_tag() -> io::Result<u8> {
    let own = crate::domain::tag::settable_ioprio(get(0)?);
    let try_tag = |number: u8| match Tag::new(u64::from(number)) {
        Some(tag) => set(0, tag.ioprio()),
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    try_tag(TAGS_WITHOUT_HINT)?;
    let with_hint = try_tag(Tag::MAX).is_ok();
    set(0, own)?;
    Ok(if with_hint {
        Tag::MAX
    } else {
        TAGS_WITHOUT_HINT
    })
}
