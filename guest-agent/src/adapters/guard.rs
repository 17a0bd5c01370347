// SPDX-License-Identifier: GPL-2.0-or-later
//! A program in the kernel that lets nobody lay a tag down (bpf/ioprio.bpf.c). It needs a kernel
//! that describes its types (BTF), CAP_BPF and CAP_PERFMON.
//!
//! aya has no programs of the kind "fmod_ret", whose answer is the answer of the function. So it
//! fits the program to the kernel, and the two system calls are made here.

use crate::adapters::kept::{Kept, name};
use aya::Btf;
use aya_obj::btf::BtfKind;
use aya_obj::generated::{bpf_attach_type, bpf_attr, bpf_cmd, bpf_prog_type};
use aya_obj::{Function, Object};
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/ioprio.bpf.o"));
const PROGRAM: &str = "keep_tag";
const AT: &str = "security_task_setioprio";

/// Tags stay as long as this is held.
pub struct Guard {
    link: OwnedFd,
}

impl Guard {
    pub fn open(types: &Btf) -> Result<Guard, Box<dyn Error>> {
        let mut object = Object::parse(OBJECT)?;
        object.relocate_btf(types)?;
        let function = program(&object).ok_or("the object lacks a part")?;
        let loaded = load(
            &object,
            function,
            types.id_by_type_name_kind(AT, BtfKind::Func)?,
        )
        .map_err(|error| format!("the kernel does not load the program: {error}"))?;
        let link = attach(loaded.as_fd())
            .map_err(|error| format!("the kernel does not attach the program: {error}"))?;
        Ok(Guard { link })
    }

    /// That of a predecessor.
    pub fn of(kept: &mut Kept) -> Option<Guard> {
        let link = kept.get(&name(OBJECT, PROGRAM))?;
        Some(Guard { link })
    }

    pub fn parts(&self) -> Vec<(String, BorrowedFd<'_>)> {
        vec![(name(OBJECT, PROGRAM), self.link.as_fd())]
    }
}

fn program(object: &Object) -> Option<&Function> {
    let program = object.programs.get(PROGRAM)?;
    object.functions.get(&program.function_key())
}

fn load(object: &Object, function: &Function, at: u32) -> io::Result<OwnedFd> {
    // SAFETY: all zeroes is a value of this union of numbers.
    let mut attributes: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let wanted = unsafe { &mut attributes.__bindgen_anon_3 };
    wanted.prog_type = bpf_prog_type::BPF_PROG_TYPE_TRACING as u32;
    wanted.expected_attach_type = bpf_attach_type::BPF_MODIFY_RETURN as u32;
    wanted.attach_btf_id = at;
    wanted.insns = function.instructions.as_ptr() as u64;
    wanted.insn_cnt = function.instructions.len() as u32;
    wanted.license = object.license.as_ptr() as u64;
    call(bpf_cmd::BPF_PROG_LOAD, &attributes)
}

/// The program is in force as long as the answer is held by somebody.
pub(super) fn attach(loaded: BorrowedFd) -> io::Result<OwnedFd> {
    // SAFETY: all zeroes is a value of this union of numbers.
    let mut attributes: bpf_attr = unsafe { std::mem::zeroed() };
    attributes.raw_tracepoint.prog_fd = loaded.as_raw_fd() as u32;
    call(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &attributes)
}

/// The descriptor that is the answer.
fn call(command: bpf_cmd, attributes: &bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the attributes, and all that they point to, are valid for the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_int,
            &raw const *attributes,
            size_of::<bpf_attr>() as libc::c_uint,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has made it just now, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(answer as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It must be whole by itself: nothing is linked to it, and no map is made for it.
    #[test]
    fn the_program_is_in_the_object_and_needs_nothing_else() {
        let object = Object::parse(OBJECT).unwrap();
        assert!(!program(&object).unwrap().instructions.is_empty());
        assert!(object.maps.is_empty());
        assert_eq!(object.license.to_bytes(), b"GPL");
    }
}
