// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps the list of processes up to date at little cost.
//!
//! * A quick scan looks for new processes only, and lists /proc only if a
//!   process id was given out since the last scan. It reads new and young
//!   processes: a fork takes its shape within its first second.
//! * A full scan reads /proc/PID/stat of all. Addresses in it show an execve()
//!   that kept the pid; then the facts are read anew, and every ten seconds in
//!   any case, for a changed title, user or cgroup.
//! * Kernel threads are read once. A pid is not used again within the second
//!   between two full scans, so a pid that never left the list is the same
//!   thread; after a longer pause (no host, no rules) they are read again. Of
//!   processes the start time is compared.
//! * A process of which the kernel tells is looked at by itself, at once.
//! * I/O counters of a process that neither ran nor did I/O are read every
//!   fourth full scan only.

use crate::adapters::clock::Clock;
use crate::adapters::procfs::{Proc, ProcessStat, Users};
use crate::domain::matching::Assignment;
use crate::domain::rules::{Facts, Rule};
use crate::domain::table::{Rates, Reading, rates};
use crate::domain::tag::Tag;
use crate::domain::tagging::TaggedProcess;
use std::collections::{BTreeMap, HashSet};
use std::io;

const YOUNG_NS: u64 = 1_000_000_000;
const FACTS_LAST_NS: u64 = 10_000_000_000;
const KERNEL_THREADS_LAST_NS: u64 = 3_000_000_000;
const IDLE_IO_EVERY: u64 = 4;

/// More generations do not come and go between two scans.
const MOST_ANCESTORS: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Quick,
    /// Everything, for matching.
    Full,
    /// Everything and the I/O counters, for the table.
    Table,
}

/// The rule that a process inherited, and its parent then.
#[derive(Debug, Clone)]
pub struct Lineage {
    pub rule: Rule,
    pub parent: (i32, u64),
}

/// A process other than a kernel thread.
#[derive(Debug, Default)]
pub struct Process {
    pub facts: Facts,
    pub comm: String,
    pub ppid: i32,
    pub threads: u64,
    pub rss_pages: u64,
    pub is_zombie: bool,
    pub rates: Rates,
    /// Appeared while the agent ran.
    pub is_newborn: bool,
    /// The rule that matches the process itself; `None`: to be found.
    pub direct: Option<Option<usize>>,
    pub assignment: Option<Assignment>,
    pub lineage: Option<Lineage>,
    pub tagged: Option<TaggedProcess>,
    /// The tag it had before its present one or none, and its base priority:
    /// children and threads born meanwhile have it still.
    pub former: Option<(Tag, u16)>,
    /// Inodes of its tagged sockets.
    pub held: Vec<u64>,
    /// Inodes of its sockets of which the kernel has told and that were not looked at since.
    pub noted: Vec<u64>,
    /// Inodes of its sockets that are not of IP.
    pub not_ip: HashSet<u64>,
    pub descriptors: usize,
    /// When they were looked through, and the processor's time that took.
    pub descriptors_seen_ns: u64,
    pub descriptors_took_ns: u64,
    /// From which of its many sockets on their marks are checked next.
    pub verify_turn: usize,
    first_seen_ns: u64,
    facts_read_ns: u64,
    image: (u64, u64, u64),
    reading: Reading,
    io_active: bool,
}

pub enum Entry {
    /// Not read again while the list is watched: a kernel thread stays one.
    KernelThread,
    Process(Box<Process>),
}

#[derive(Default)]
pub struct Changes {
    /// Processes, parents or facts changed: rules must be matched again.
    pub any: bool,
    /// Processes that ended, as they were.
    pub gone: Vec<(i32, Box<Process>)>,
}

pub struct Scanner {
    pub proc: Proc,
    pub entries: BTreeMap<i32, Entry>,
    users: Users,
    ticks_per_second: u64,
    scans: u64,
    last_id: Option<u64>,
    /// When it was last known that the list is complete.
    listed_ns: u64,
    young: Vec<i32>,
    /// Since the scan began: it may be kept waiting for a processor, and then
    /// a counter is of a later time than the scan.
    clock: Clock,
}

impl Scanner {
    pub fn new() -> io::Result<Scanner> {
        Ok(Scanner {
            proc: Proc::open()?,
            entries: BTreeMap::new(),
            users: Users::default(),
            ticks_per_second: procfs::ticks_per_second(),
            scans: 0,
            last_id: None,
            listed_ns: 0,
            young: Vec::new(),
            clock: Clock::start(),
        })
    }

    pub fn processes(&self) -> impl Iterator<Item = (i32, &Process)> {
        self.entries.iter().filter_map(|(&pid, entry)| match entry {
            Entry::Process(process) => Some((pid, process.as_ref())),
            Entry::KernelThread => None,
        })
    }

    pub fn process(&self, pid: i32) -> Option<&Process> {
        match self.entries.get(&pid)? {
            Entry::Process(process) => Some(process),
            Entry::KernelThread => None,
        }
    }

    /// Parent first, as they were last read: a loop is possible, so this ends.
    pub fn ancestors(&self, pid: i32) -> impl Iterator<Item = &Process> {
        let parent = |process: &&Process| self.process(process.ppid);
        let first = self.process(pid).as_ref().and_then(parent);
        std::iter::successors(first, parent).take(MOST_ANCESTORS)
    }

    pub fn process_mut(&mut self, pid: i32) -> Option<&mut Process> {
        match self.entries.get_mut(&pid)? {
            Entry::Process(process) => Some(process),
            Entry::KernelThread => None,
        }
    }

    pub fn scan(&mut self, now_ns: u64, depth: Depth) -> io::Result<Changes> {
        self.clock = Clock::start();
        let mut changes = Changes::default();
        let is_first = self.scans == 0;
        self.scans += 1;
        // Before the listing: a process that starts during it shows at the next scan.
        let last_id = self.proc.last_id();
        let is_still = last_id.is_some() && last_id == self.last_id;
        self.last_id = last_id;
        let known = if depth == Depth::Quick {
            let mut young = std::mem::take(&mut self.young);
            young.sort_unstable();
            young.dedup();
            young
        } else {
            self.young.clear();
            self.processes().map(|(pid, _)| pid).collect()
        };
        if now_ns.saturating_sub(self.listed_ns) >= KERNEL_THREADS_LAST_NS {
            self.entries
                .retain(|_, entry| matches!(entry, Entry::Process(_)));
        }
        if depth != Depth::Quick || !is_still {
            self.users.refresh();
            let mut listed = self.proc.list()?;
            listed.sort_unstable();
            self.drop_ended(&listed, &mut changes);
            for pid in listed {
                if !self.entries.contains_key(&pid) {
                    changes.any |= self.add(pid, now_ns, !is_first);
                }
            }
        }
        self.listed_ns = now_ns;
        for pid in known {
            self.update(pid, now_ns, depth, &mut changes);
        }
        if depth == Depth::Table {
            self.read_io(now_ns);
        }
        Ok(changes)
    }

    /// One process of which it is known that it has started or changed.
    pub fn look_at(&mut self, pid: i32, now_ns: u64, changes: &mut Changes) {
        self.clock = Clock::start();
        match self.entries.get_mut(&pid) {
            Some(Entry::Process(process)) => {
                // As if it ran another program: its facts are read.
                process.image = (0, 0, 0);
                self.update(pid, now_ns, Depth::Quick, changes);
            }
            // A kernel thread may turn into a program.
            Some(Entry::KernelThread) | None => {
                self.users.refresh();
                changes.any |= self.add(pid, now_ns, true);
            }
        }
    }

    fn drop_ended(&mut self, listed: &[i32], changes: &mut Changes) {
        let ended: Vec<i32> = self
            .entries
            .keys()
            .filter(|pid| listed.binary_search(pid).is_err())
            .copied()
            .collect();
        for pid in ended {
            self.drop_one(pid, changes);
        }
    }

    fn drop_one(&mut self, pid: i32, changes: &mut Changes) {
        if let Some(Entry::Process(process)) = self.entries.remove(&pid) {
            changes.any = true;
            changes.gone.push((pid, process));
        }
    }

    fn add(&mut self, pid: i32, now_ns: u64, is_newborn: bool) -> bool {
        let Ok(stat) = self.proc.stat(pid) else {
            return false;
        };
        if stat.is_kernel_thread {
            self.entries.insert(pid, Entry::KernelThread);
            return false;
        }
        let mut process = Box::new(Process {
            is_newborn,
            first_seen_ns: now_ns,
            reading: Reading {
                at_ns: now_ns.saturating_add(self.clock.now_ns()),
                cpu_ticks: stat.cpu_ticks,
                ..Reading::default()
            },
            io_active: true,
            ..Process::default()
        });
        process.take_stat(pid, stat);
        read_facts(&mut self.proc, &self.users, pid, &mut process, now_ns);
        self.entries.insert(pid, Entry::Process(process));
        if is_newborn {
            self.young.push(pid);
        }
        true
    }

    fn update(&mut self, pid: i32, now_ns: u64, depth: Depth, changes: &mut Changes) {
        let Ok(stat) = self.proc.stat(pid) else {
            return;
        };
        let read_ns = now_ns.saturating_add(self.clock.now_ns());
        let Some(Entry::Process(process)) = self.entries.get_mut(&pid) else {
            return;
        };
        if stat.start_time_ticks != process.facts.start_time_ticks {
            self.drop_one(pid, changes);
            self.add(pid, now_ns, true);
            return;
        }
        let before = process.reading;
        if depth == Depth::Table {
            process.reading.at_ns = read_ns;
            process.reading.cpu_ticks = stat.cpu_ticks;
            let rates = rates(&before, &process.reading, self.ticks_per_second);
            process.rates.cpu_ratio = rates.cpu_ratio;
            process.io_active |= stat.cpu_ticks != before.cpu_ticks;
        }
        let is_young = now_ns.saturating_sub(process.first_seen_ns) < YOUNG_NS;
        if is_young {
            self.young.push(pid);
        }
        changes.any |= stat.ppid != process.ppid;
        let is_due = process.image != stat.image
            || process.comm != stat.comm
            || (is_young && depth != Depth::Quick)
            || now_ns.saturating_sub(process.facts_read_ns) >= FACTS_LAST_NS;
        let is_zombie = stat.is_zombie;
        process.take_stat(pid, stat);
        // A zombie has no facts left; its earlier facts still hold.
        if is_due && !is_zombie {
            changes.any |= read_facts(&mut self.proc, &self.users, pid, process, now_ns);
        }
    }

    fn read_io(&mut self, now_ns: u64) {
        for (&pid, entry) in &mut self.entries {
            let Entry::Process(process) = entry else {
                continue;
            };
            let is_turn = (self.scans + pid as u64) % IDLE_IO_EVERY == 0;
            if process.is_zombie || !(process.io_active || is_turn) {
                process.rates.read_bps = 0;
                process.rates.write_bps = 0;
                continue;
            }
            let is_alone = process.threads == 1;
            let Ok((read_bytes, write_bytes)) = self.proc.io(pid, is_alone) else {
                continue;
            };
            let read_ns = now_ns.saturating_add(self.clock.now_ns());
            let before = process.reading;
            let reading = &mut process.reading;
            (reading.io_at_ns, reading.read_bytes, reading.write_bytes) =
                (read_ns, read_bytes, write_bytes);
            reading.is_alone = is_alone;
            // Without an earlier reading there is no rate to tell.
            let rate = if before.io_at_ns == 0 {
                Rates::default()
            } else {
                rates(&before, reading, self.ticks_per_second)
            };
            (process.rates.read_bps, process.rates.write_bps) = (rate.read_bps, rate.write_bps);
            process.io_active = rate.read_bps > 0 || rate.write_bps > 0;
        }
    }
}

impl Process {
    fn take_stat(&mut self, pid: i32, stat: ProcessStat) {
        self.facts.pid = pid;
        self.facts.start_time_ticks = stat.start_time_ticks;
        self.ppid = stat.ppid;
        self.threads = stat.threads;
        self.rss_pages = stat.rss_pages;
        self.is_zombie = stat.is_zombie;
        self.image = stat.image;
        self.comm = stat.comm;
    }
}

/// Whether they changed.
fn read_facts(
    proc: &mut Proc,
    users: &Users,
    pid: i32,
    process: &mut Process,
    now_ns: u64,
) -> bool {
    let uid = proc.effective_uid(pid).unwrap_or(process.facts.uid);
    let facts = Facts {
        pid,
        start_time_ticks: process.facts.start_time_ticks,
        exe: proc.exe(pid),
        cmdline: proc.cmdline(pid),
        uid,
        user: users.name(uid),
        cgroup: proc.cgroup(pid),
    };
    process.facts_read_ns = now_ns;
    let has_changed = facts != process.facts;
    if has_changed {
        process.facts = facts;
        process.direct = None;
    }
    has_changed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not of the scan: a rate over a time that is too short is too high.
    #[test]
    fn counters_have_the_time_at_which_they_were_read() {
        const SCAN_NS: u64 = 1_000_000_000;
        let mut scanner = Scanner::new().unwrap();
        let own = std::process::id() as i32;
        // I/O counters are read of all the first time, later of some.
        scanner.scan(SCAN_NS, Depth::Table).unwrap();
        let first = scanner.process(own).unwrap().reading;
        assert!(first.at_ns > SCAN_NS, "{first:?}");
        assert!(first.io_at_ns >= first.at_ns, "{first:?}");
        scanner.scan(2 * SCAN_NS, Depth::Table).unwrap();
        let second = scanner.process(own).unwrap().reading;
        assert!(second.at_ns > 2 * SCAN_NS, "{second:?}");
    }

    /// A kernel thread whose pid went to this process between two scans.
    #[test]
    fn a_pid_that_was_a_kernel_threads_is_read_again_after_a_pause() {
        let own = std::process::id() as i32;
        let mut scanner = Scanner::new().unwrap();
        scanner.scan(0, Depth::Full).unwrap();
        scanner.entries.insert(own, Entry::KernelThread);
        scanner.scan(1_000_000_000, Depth::Full).unwrap();
        assert!(scanner.process(own).is_none());
        let pause_ns = 1_000_000_000 + KERNEL_THREADS_LAST_NS;
        scanner.scan(pause_ns, Depth::Full).unwrap();
        assert!(scanner.process(own).is_some());
    }
}
