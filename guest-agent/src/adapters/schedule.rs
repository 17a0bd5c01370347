// SPDX-License-Identifier: GPL-2.0-or-later
//! How the kernel schedules a thread: its policy and priority.

use serde::{Deserialize, Serialize};
use std::io;
use std::mem::size_of;

/// Of threads that are raised; and of the agent meanwhile, so that it takes it back in time.
pub const RAISED: u32 = 1;
pub const ABOVE_RAISED: u32 = 2;

/// What a thread had: a policy that shares the time with others, and its nice value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    policy: u32,
    nice: i32,
    flags: u64,
}

/// What a thread has, if it shares the time with others. `tid` 0: the caller.
pub fn shared(tid: i32) -> io::Result<Option<Shared>> {
    let present = get(tid)?;
    let is_shared = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE]
        .contains(&(present.sched_policy as i32));
    Ok(is_shared.then_some(Shared {
        policy: present.sched_policy,
        nice: present.sched_nice,
        flags: present.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64,
    }))
}

/// Gives a thread real-time priority, which its children do not inherit.
pub fn raise(tid: i32, priority: u32) -> io::Result<()> {
    let mut wanted = empty();
    wanted.sched_policy = libc::SCHED_RR as u32;
    wanted.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    wanted.sched_priority = priority;
    set(tid, &wanted)
}

/// Gives a thread back what it had, unless somebody has changed it since.
pub fn restore(tid: i32, priority: u32, former: Shared) -> io::Result<()> {
    let present = get(tid)?;
    let is_ours =
        present.sched_policy == libc::SCHED_RR as u32 && present.sched_priority == priority;
    if !is_ours {
        return Ok(());
    }
    let mut wanted = empty();
    wanted.sched_policy = former.policy;
    wanted.sched_nice = former.nice;
    wanted.sched_flags = former.flags;
    set(tid, &wanted)
}

fn empty() -> libc::sched_attr {
    libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    }
}

fn get(tid: i32) -> io::Result<libc::sched_attr> {
    let mut attr = empty();
    let size = attr.size;
    // SAFETY: the kernel writes `size` bytes at most, for which there is room.
    let status = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0) };
    if status == 0 {
        Ok(attr)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set(tid: i32, attr: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads the structure, which has the size that it names.
    let status = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const *attr, 0) };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_raised_and_restored() {
        // Of a thread that ends with the test.
        std::thread::spawn(|| {
            // SAFETY: takes plain integers.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 7) };
            let former = shared(0).unwrap().unwrap();
            if raise(0, RAISED).is_err() {
                eprintln!("not tried: this kernel has groups of real-time threads");
                return;
            }
            assert_eq!(get(0).unwrap().sched_policy, libc::SCHED_RR as u32);
            assert_eq!(shared(0).unwrap(), None, "it is raised already");
            restore(0, ABOVE_RAISED, former).unwrap();
            assert_eq!(
                get(0).unwrap().sched_priority,
                RAISED,
                "not of this priority"
            );
            restore(0, RAISED, former).unwrap();
            let present = get(0).unwrap();
            assert_eq!(present.sched_policy, libc::SCHED_OTHER as u32);
            assert_eq!((present.sched_nice, present.sched_flags), (7, 0));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_has_ended_is_an_error() {
        let error = raise(i32::MAX, RAISED).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
