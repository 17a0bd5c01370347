// SPDX-License-Identifier: GPL-2.0-or-later
//! CPU priority of a class while it is limited, by the real agent. The device's memory is plain
//! files. Needs root.

mod common;
use common::*;
use sluice_agent::adapters::schedule;
use sluice_agent::domain::channel_abi::{CLASS_BYTES, RESOURCES, class, event, host};

const TAG: u8 = 3;
const DISK_WRITE: u8 = 1;

/// (policy, real-time priority) of a thread.
fn scheduled(tid: i32) -> (i32, i32) {
    // SAFETY: takes a plain integer; the kernel writes one structure, for which there is room.
    unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        libc::sched_getparam(tid, &raw mut param);
        (
            libc::sched_getscheduler(tid) & !libc::SCHED_RESET_ON_FORK,
            param.sched_priority,
        )
    }
}

fn is_raised(tid: i32) -> bool {
    scheduled(tid) == (libc::SCHED_RR, 1)
}

fn is_shared(tid: i32) -> bool {
    scheduled(tid) == (libc::SCHED_OTHER, 0)
}

/// A kernel with groups of real-time threads refuses threads that are in a control group.
fn may_raise() -> bool {
    let may = std::thread::spawn(|| schedule::raise(0, schedule::RAISED).is_ok());
    let may = may.join().unwrap();
    if !may {
        eprintln!(
            "not tried: this kernel gives no thread of this control group real-time priority"
        );
    }
    may
}

/// The class entry is limited, as the host would have it.
fn limit(device: &Device, is_limited: bool) {
    let at = (usize::from(TAG) * RESOURCES + usize::from(DISK_WRITE)) * CLASS_BYTES;
    device.set(4, host::CLASSES + at + class::LIMITED, &[is_limited.into()]);
}

/// The period is so long that this test is in its first part, or else in the rest.
fn start(budget: &str) -> (Host, Device, Watched) {
    let (mut host, device) = Host::start_with_options(&["--raise", budget]);
    let watched = Watched::start();
    host.assign(watched.pid(), TAG);
    (host, device, watched)
}

#[test]
fn threads_of_a_limited_class_are_raised_and_taken_back() {
    if !may_raise() {
        return;
    }
    let (mut host, device, mut watched) = start("c=9s/10s");
    let (pid, agent) = (watched.pid(), host.agent.id() as i32);
    limit(&device, true);
    eventually("it is raised", || is_raised(pid));
    assert_eq!(scheduled(agent), (libc::SCHED_RR, 2), "above it");
    let file = host.folder.join("raised.json");
    let told = std::fs::read_to_string(&file).unwrap();
    assert!(told.contains(&pid.to_string()), "{told}");
    limit(&device, false);
    eventually("it is taken back", || is_shared(pid));
    eventually("the agent, too", || is_shared(agent));
    assert!(!file.exists());
    limit(&device, true);
    eventually("it is raised again", || is_raised(pid));
    host.end(libc::SIGTERM);
    assert!(is_shared(pid), "the agent has ended");
    watched.end();
}

#[test]
fn no_longer_than_the_budget() {
    if !may_raise() {
        return;
    }
    let (_host, device, mut watched) = start("c=20ms/10s");
    let pid = watched.pid();
    limit(&device, true);
    eventually("it is raised for a moment", || is_raised(pid));
    eventually("it is taken back while it is limited", || is_shared(pid));
    watched.end();
}

#[test]
fn an_event_raises_before_the_entries_tell() {
    if !may_raise() {
        return;
    }
    let (_host, device, mut watched) = start("c=9s/10s");
    let pid = watched.pid();
    device.until_read();
    // The entries are older than the event, so they do not count.
    let at = host::EVENTS + event::TIME_NS;
    device.set(4, at, &1_u64.to_le_bytes());
    device.make_event(1, [event::LIMITED, TAG, DISK_WRITE], 3);
    eventually("it is raised", || is_raised(pid));
    device.set(4, at + 32, &2_u64.to_le_bytes());
    device.make_event(2, [event::UNLIMITED, TAG, DISK_WRITE], 0);
    eventually("it is taken back", || is_shared(pid));
    watched.end();
}

#[test]
fn what_a_killed_agent_left_is_taken_back() {
    if !may_raise() {
        return;
    }
    let (mut host, device, mut watched) = start("c=9s/10s");
    let pid = watched.pid();
    limit(&device, true);
    eventually("it is raised", || is_raised(pid));
    host.end(libc::SIGKILL);
    assert!(is_raised(pid));
    assert!(host.untag());
    assert!(is_shared(pid));
    host.start_again();
    watched.end();
}
