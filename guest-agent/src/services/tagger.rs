// SPDX-License-Identifier: GPL-2.0-or-later
//! Puts tags on threads and sockets, and takes them off again.

use crate::adapters::ioprio;
use crate::adapters::procfs::Proc;
use crate::adapters::sockets::{ForeignProcess, IpSocket};
use crate::domain::ports::{Endpoint, Local, PortTable};
use crate::domain::tag::{Tag, settable_ioprio};
use crate::domain::tagging::{
    TaggedProcess, TaggedSocket, is_replaced, marks_back, marks_with, original_marks, plan_restore,
    plan_thread,
};
use crate::services::scanner::Process;
use std::collections::{BTreeMap, HashMap};
use std::io;

/// A thread made while its siblings are listed may be missed: list again until
/// nothing was new, but no longer than this against a fork bomb.
const MOST_PASSES: usize = 4;

/// Processes with more descriptors are looked through at full scans only, and
/// no more than this many known sockets are checked again at a time.
pub const MANY_DESCRIPTORS: usize = 128;

/// Sockets of a process that have a port and were not found by a descriptor yet. The descriptors
/// of a process whose main thread has ended cannot be seen, and its other threads go on.
const MOST_NOTED: usize = 4096;

/// Tags and priority that a process's creator may have handed down.
#[derive(Debug, Clone, Default)]
pub struct Heritage {
    pub tags: Vec<Tag>,
    pub base_ioprio: u16,
}

impl Heritage {
    /// `ancestors`: parent first. An ancestor that has and had no tag hands on its own
    /// heritage: it ended, or has yet to have its turn, before it was tagged.
    pub fn of<'a>(mut ancestors: impl Iterator<Item = &'a Process>) -> Heritage {
        let Some(nearest) = ancestors.find(|process| {
            process.assignment.is_none() || process.tagged.is_some() || process.former.is_some()
        }) else {
            return Heritage::default();
        };
        let tagged = nearest
            .tagged
            .as_ref()
            .map(|tagged| (tagged.tag, tagged.base_ioprio));
        Heritage {
            tags: tagged
                .iter()
                .chain(&nearest.former)
                .map(|(tag, _)| *tag)
                .collect(),
            base_ioprio: tagged.or(nearest.former).map_or(0, |(_, base)| base),
        }
    }
}

/// Whether it is time to look through the process's descriptors: of many only every so long, or
/// when nearly as many sockets were told of as are remembered.
pub fn is_due(process: &Process, now_ns: u64, every_ns: u64) -> bool {
    process.descriptors <= MANY_DESCRIPTORS
        || process.noted.len() >= MOST_NOTED / 2
        || now_ns.saturating_sub(process.descriptors_seen_ns) >= every_ns
}

/// Whether anything to remember changed.
pub fn tag_threads(
    proc: &Proc,
    pid: i32,
    process: &mut Process,
    tag: Tag,
    heritage: &Heritage,
) -> io::Result<bool> {
    let started = process.facts.start_time_ticks;
    let mut born_with = heritage.tags.clone();
    let former = process
        .tagged
        .as_ref()
        .map(|tagged| (tagged.tag, tagged.base_ioprio))
        .filter(|(former, _)| *former != tag);
    let mut has_changed = process.tagged.is_none() || former.is_some();
    let mut tagged = match process.tagged.take() {
        Some(tagged) => {
            born_with.extend([tagged.tag, tag]);
            tagged
        }
        None => {
            let current = ioprio::get(pid)?;
            let is_inherited =
                Tag::of_ioprio(current).is_some_and(|tag| heritage.tags.contains(&tag));
            let base_ioprio = if is_inherited {
                heritage.base_ioprio
            } else {
                settable_ioprio(current)
            };
            TaggedProcess {
                tag,
                base_ioprio,
                threads: BTreeMap::new(),
            }
        }
    };
    tagged.tag = tag;
    let outcome = tag_each_thread(proc, (pid, started), &mut tagged, born_with);
    process.tagged = Some(tagged);
    process.former = former.or(process.former);
    has_changed |= outcome?;
    Ok(has_changed)
}

fn tag_each_thread(
    proc: &Proc,
    (pid, started): (i32, u64),
    tagged: &mut TaggedProcess,
    mut born_with: Vec<Tag>,
) -> io::Result<bool> {
    let mut has_changed = false;
    for _ in 0..MOST_PASSES {
        let threads = proc.threads(pid)?;
        let mut has_set = false;
        let mut is_verified = false;
        for &tid in &threads {
            let Ok(current) = ioprio::get(tid) else {
                continue;
            };
            let remembered = tagged.threads.get(&tid).copied();
            if current == tagged.tag.ioprio() && remembered.is_some() {
                continue;
            }
            let plan = plan_thread(
                current,
                remembered,
                tagged.tag,
                &born_with,
                tagged.base_ioprio,
            );
            if let Some(value) = plan.set {
                if !is_verified {
                    verify(proc, pid, started)?;
                    is_verified = true;
                }
                // Remembered first: a change must be known how to undo.
                tagged.threads.insert(tid, plan.original);
                match ioprio::set(tid, value) {
                    // It has ended: of a main thread that is all there is to see.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                        tagged.threads.remove(&tid);
                        continue;
                    }
                    Err(error) => return Err(error),
                    Ok(()) => has_set = true,
                }
            }
            tagged.threads.insert(tid, plan.original);
            has_changed = true;
        }
        if !has_set {
            let before = tagged.threads.len();
            tagged
                .threads
                .retain(|tid, _| threads.binary_search(tid).is_ok() || threads.contains(tid));
            return Ok(has_changed || tagged.threads.len() != before);
        }
        born_with.push(tagged.tag);
    }
    Ok(true)
}

pub fn untag_threads(proc: &Proc, pid: i32, process: &mut Process) {
    let Some(tagged) = process.tagged.take() else {
        return;
    };
    for _ in 0..MOST_PASSES {
        let Ok(threads) = proc.threads(pid) else {
            break;
        };
        if verify(proc, pid, process.facts.start_time_ticks).is_err() {
            break;
        }
        let mut has_set = false;
        for tid in threads {
            let original = tagged
                .threads
                .get(&tid)
                .copied()
                .unwrap_or(tagged.base_ioprio);
            let Ok(current) = ioprio::get(tid) else {
                continue;
            };
            if let Some(value) = plan_restore(current, tagged.tag, original) {
                has_set |= ioprio::set(tid, value).is_ok();
            }
        }
        if !has_set {
            break;
        }
    }
    process.former = Some((tagged.tag, tagged.base_ioprio));
}

/// Sockets by inode: one socket may be held by several processes.
#[derive(Default)]
pub struct SocketTagger {
    pub sockets: HashMap<u64, TaggedSocket>,
    pub ports: PortTable,
}

impl SocketTagger {
    /// A socket of a tagged process has just got its port. Its marks come when its descriptor is
    /// looked at, if it is not closed by then.
    pub fn note(&mut self, process: &mut Process, inode: u64, local: Endpoint, tag: Tag) {
        self.ports.observe(inode, Local::Bound(local), tag);
        if !self.sockets.contains_key(&inode) {
            process.noted.push(inode);
        }
        if process.noted.len() > MOST_NOTED {
            for old in process.noted.drain(..MOST_NOTED / 2) {
                if !self.sockets.contains_key(&old) {
                    self.ports.closed(old);
                }
            }
        }
    }

    /// Tags the IP sockets of a process. With `verify`, known ones are checked
    /// for marks that the program has set since. Whether anything changed.
    pub fn tag(
        &mut self,
        proc: &Proc,
        pid: i32,
        process: &mut Process,
        tag: Tag,
        verify: bool,
    ) -> io::Result<bool> {
        let noted = std::mem::take(&mut process.noted);
        let outcome = self.tag_open(proc, pid, process, tag, verify);
        // Those that were found are tagged by now.
        for inode in noted {
            if !self.sockets.contains_key(&inode) {
                self.ports.closed(inode);
            }
        }
        outcome
    }

    fn tag_open(
        &mut self,
        proc: &Proc,
        pid: i32,
        process: &mut Process,
        tag: Tag,
        verify: bool,
    ) -> io::Result<bool> {
        let (descriptors, mut found) = proc.sockets(pid)?;
        process.descriptors = descriptors;
        found.sort_unstable_by_key(|&(_, inode)| inode);
        found.dedup_by_key(|&mut (_, inode)| inode);
        let mut has_changed = self.release(pid, process, &found);
        process.not_ip.retain(|inode| {
            found
                .binary_search_by_key(inode, |&(_, inode)| inode)
                .is_ok()
        });
        let verified = verify_window(&mut process.verify_turn, found.len(), verify);
        let mut owner = None;
        let mut outcome = Ok(());
        for (position, &(descriptor, inode)) in found.iter().enumerate() {
            if process.not_ip.contains(&inode) {
                continue;
            }
            let is_settled = match self.sockets.get_mut(&inode) {
                None => false,
                Some(socket) => {
                    if !socket.holders.contains(&pid) {
                        socket.holders.push(pid);
                        process.held.push(inode);
                        has_changed = true;
                    }
                    let is_ours = socket.holders.first() == Some(&pid);
                    let is_known = socket.tag == tag && self.ports.is_settled(inode);
                    !is_ours || (is_known && !verified(position))
                }
            };
            if is_settled {
                continue;
            }
            let owner = match &owner {
                Some(owner) => owner,
                None => owner.insert(open_verified(proc, pid, process)?),
            };
            match owner.ip_socket(descriptor, inode) {
                Ok(Some(socket)) => {
                    match self.mark(pid, process, inode, &socket, tag) {
                        Ok(has_marked) => has_changed |= has_marked,
                        Err(error) if is_unsupported(&error) => {
                            process.not_ip.insert(inode);
                        }
                        // One socket's trouble is not another one's.
                        Err(error) => outcome = Err(error),
                    }
                    // Its port counts even where it takes no mark.
                    if self.sockets.contains_key(&inode) {
                        match socket.local() {
                            Ok(local) => self.ports.observe(inode, local, tag),
                            Err(error) => outcome = Err(error),
                        }
                    }
                }
                Ok(None) => {
                    process.not_ip.insert(inode);
                }
                // Closed or replaced meanwhile: the next scan sees.
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        outcome.map(|()| has_changed)
    }

    /// Restores the sockets of a process that matches no longer, unless another
    /// tagged process holds them too.
    pub fn untag(&mut self, proc: &Proc, pid: i32, process: &mut Process) -> io::Result<()> {
        process.not_ip.clear();
        for inode in std::mem::take(&mut process.noted) {
            self.ports.released(inode);
        }
        // All are let go first, so that none is held if a call below fails.
        let orphans: Vec<(u64, TaggedSocket)> = std::mem::take(&mut process.held)
            .into_iter()
            .filter_map(|inode| Some((inode, self.let_go(pid, inode)?)))
            .collect();
        for (inode, _) in &orphans {
            self.ports.released(*inode);
        }
        if orphans.is_empty() {
            return Ok(());
        }
        let (_, found) = proc.sockets(pid)?;
        let owner = ForeignProcess::open(pid)?;
        let mut outcome = Ok(());
        for (inode, orphan) in orphans {
            let Some(&(descriptor, _)) = found.iter().find(|&&(_, other)| other == inode) else {
                continue;
            };
            match restore(&owner, descriptor, inode, &orphan) {
                Err(error) if !is_gone(&error) => outcome = Err(error),
                _ => {}
            }
        }
        outcome
    }

    /// A process ended: its sockets ended with it, unless others hold them.
    pub fn forget(&mut self, pid: i32, process: &Process) {
        for &inode in &process.held {
            self.close(pid, inode);
        }
        for &inode in &process.noted {
            if !self.sockets.contains_key(&inode) {
                self.ports.closed(inode);
            }
        }
    }

    fn mark(
        &mut self,
        pid: i32,
        process: &mut Process,
        inode: u64,
        socket: &IpSocket,
        tag: Tag,
    ) -> io::Result<bool> {
        let current = socket.marks()?;
        if let Some(known) = self.sockets.get_mut(&inode) {
            if known.tag == tag && !is_replaced(current, tag) {
                return Ok(false);
            }
            if is_replaced(current, known.tag) {
                known.original = original_marks(current);
            }
            known.tag = tag;
        } else {
            let original = original_marks(current);
            self.sockets.insert(
                inode,
                TaggedSocket {
                    tag,
                    original,
                    holders: vec![pid],
                },
            );
            process.held.push(inode);
        }
        if is_replaced(current, tag) {
            socket.set_marks(marks_with(current, tag))?;
        }
        Ok(true)
    }

    /// Lets go of sockets that the process has closed.
    fn release(&mut self, pid: i32, process: &mut Process, found: &[(i32, u64)]) -> bool {
        let is_open = |inode: &u64| {
            found
                .binary_search_by_key(inode, |&(_, inode)| inode)
                .is_ok()
        };
        let (open, closed): (Vec<u64>, Vec<u64>) =
            process.held.iter().partition(|inode| is_open(inode));
        process.held = open;
        for &inode in &closed {
            self.close(pid, inode);
        }
        !closed.is_empty()
    }

    fn close(&mut self, pid: i32, inode: u64) {
        if self.let_go(pid, inode).is_some() {
            self.ports.closed(inode);
        }
    }

    /// The socket's record if this was its last holder.
    fn let_go(&mut self, pid: i32, inode: u64) -> Option<TaggedSocket> {
        let socket = self.sockets.get_mut(&inode)?;
        socket.holders.retain(|&holder| holder != pid);
        if socket.holders.is_empty() {
            self.sockets.remove(&inode)
        } else {
            None
        }
    }
}

/// Which positions are checked this time: all of a few, a part of many, where
/// the part before ended.
fn verify_window(turn: &mut usize, count: usize, verify: bool) -> impl Fn(usize) -> bool + use<> {
    let start = if count > MANY_DESCRIPTORS {
        *turn % count
    } else {
        0
    };
    if verify {
        *turn = start + MANY_DESCRIPTORS;
    }
    move |position| verify && (position + count - start) % count.max(1) < MANY_DESCRIPTORS
}

fn restore(
    owner: &ForeignProcess,
    descriptor: i32,
    inode: u64,
    orphan: &TaggedSocket,
) -> io::Result<()> {
    let Some(socket) = owner.ip_socket(descriptor, inode)? else {
        return Ok(());
    };
    let current = socket.marks()?;
    if is_replaced(current, orphan.tag) {
        return Ok(());
    }
    socket.set_marks(marks_back(current, orphan.original))
}

/// The process, if its pid is not in use by another one by now.
fn open_verified(proc: &Proc, pid: i32, process: &Process) -> io::Result<ForeignProcess> {
    let owner = ForeignProcess::open(pid)?;
    verify(proc, pid, process.facts.start_time_ticks)?;
    Ok(owner)
}

/// Fails if the pid, and with it the listed descriptors, is another process's by now.
fn verify(proc: &Proc, pid: i32, start_time_ticks: u64) -> io::Result<()> {
    if proc.start_time(pid)? == start_time_ticks {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// The kind of socket has no such option.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP)
    )
}

/// The process or descriptor ended while it was looked at.
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || matches!(
            error.raw_os_error(),
            Some(libc::ESRCH | libc::EBADF | libc::ENOENT)
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::matching::Assignment;
    use crate::domain::tagging::SocketMarks;

    fn socket(holders: &[i32]) -> TaggedSocket {
        let tag = Tag::new(3).unwrap();
        let original = SocketMarks {
            tos: 0,
            traffic_class: None,
            priority: 0,
        };
        TaggedSocket {
            tag,
            original,
            holders: holders.to_vec(),
        }
    }

    fn holding(inodes: &[u64]) -> Process {
        let mut process = Process::default();
        process.held.extend(inodes);
        process
    }

    #[test]
    fn a_process_that_ended_meanwhile_holds_no_socket() {
        const ENDED: i32 = i32::MAX;
        let proc = Proc::open().unwrap();
        let mut tagger = SocketTagger::default();
        tagger.sockets.insert(7, socket(&[ENDED]));
        tagger.sockets.insert(8, socket(&[ENDED, 42]));
        let outcome = tagger.untag(&proc, ENDED, &mut holding(&[7, 8]));
        assert!(is_gone(&outcome.unwrap_err()));
        assert_eq!(tagger.sockets.keys().collect::<Vec<_>>(), [&8]);
        assert_eq!(tagger.sockets[&8].holders, [42]);
    }

    #[test]
    fn sockets_that_are_never_found_are_not_remembered_for_ever() {
        let mut tagger = SocketTagger::default();
        let mut process = Process::default();
        let last = 3 * MOST_NOTED as u64;
        for inode in 1..=last {
            let local = Endpoint {
                protocol: crate::domain::ports::Protocol::Tcp,
                port: (inode % 60_000) as u16,
            };
            tagger.note(&mut process, inode, local, Tag::new(3).unwrap());
        }
        assert!(process.noted.len() <= MOST_NOTED);
        let is_known = |inode: &u64| tagger.ports.is_settled(*inode);
        assert!(is_known(&last));
        assert!((1..=last).filter(is_known).count() <= MOST_NOTED);
        assert!(tagger.ports.has_tails(), "their connections may be closing");
    }

    #[test]
    fn many_descriptors_are_looked_through_when_it_is_time_or_much_was_told() {
        let mut process = Process::default();
        assert!(is_due(&process, 1, 5), "they are few");
        process.descriptors = MANY_DESCRIPTORS + 1;
        process.descriptors_seen_ns = 10;
        assert!(!is_due(&process, 14, 5));
        assert!(is_due(&process, 15, 5));
        assert!(is_due(&process, 10, 0), "every look is at all");
        process.noted = (1..=MOST_NOTED as u64 / 2).collect();
        assert!(is_due(&process, 14, 5));
    }

    #[test]
    fn every_known_socket_has_its_turn_beside_other_processes() {
        const COUNT: usize = 2 * MANY_DESCRIPTORS;
        let mut turns = [0; 2];
        let mut checked = [false; COUNT];
        for _ in 0..4 {
            for (process, turn) in turns.iter_mut().enumerate() {
                let is_checked = verify_window(turn, COUNT, true);
                for position in (0..COUNT).filter(|&position| is_checked(position)) {
                    checked[position] |= process == 0;
                }
            }
        }
        assert!(checked.iter().all(|&is_checked| is_checked));
    }

    fn member() -> Process {
        let mut process = Process::default();
        process.assignment = Some(Assignment {
            rule: 0,
            inherited: true,
        });
        process
    }

    #[test]
    fn a_parent_that_ended_before_it_was_tagged_hands_on_what_it_was_given() {
        const BASE: u16 = 0x4002;
        let tag = Tag::new(3).unwrap();
        let ended = member();
        let mut creator = member();
        creator.former = Some((tag, BASE));
        let heritage = Heritage::of([&ended, &creator].into_iter());
        assert_eq!((heritage.tags, heritage.base_ioprio), (vec![tag], BASE));
    }

    #[test]
    fn a_parent_of_no_class_hands_nothing_on() {
        let mut far = member();
        far.former = Some((Tag::new(3).unwrap(), 0x4002));
        let heritage = Heritage::of([&Process::default(), &far].into_iter());
        assert!(heritage.tags.is_empty());
    }

    #[test]
    fn a_pid_that_is_anothers_by_now_is_not_tagged() {
        let proc = Proc::open().unwrap();
        let own = std::process::id() as i32;
        let mut stranger = Process::default();
        stranger.facts.start_time_ticks = proc.start_time(own).unwrap() + 1;
        let tag = Tag::new(3).unwrap();
        let before = ioprio::get(own).unwrap();
        let outcome = tag_threads(&proc, own, &mut stranger, tag, &Heritage::default());
        assert!(is_gone(&outcome.unwrap_err()));
        assert_eq!(ioprio::get(own).unwrap(), before);
    }
}
