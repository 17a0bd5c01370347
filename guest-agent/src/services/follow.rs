// SPDX-License-Identifier: GPL-2.0-or-later
//! Follows processes as they start, as long as there are rules: the kernel tells of each, and
//! the agent looks at exactly that process. Scans go on beside it; they find what no event
//! tells, and all of it where the kernel tells nothing or more than can be followed.

use crate::adapters::follow::{Connector, Message};
use crate::adapters::follow_sockets::{Opened, SocketEvents};
use crate::adapters::kept::Kept;
use crate::adapters::programs::Programs;
use crate::domain::follow::{Look, MOST_LOOKS, Pace, ProcessEvent, coalesce};
use crate::domain::matching::{self, Assignment, Node};
use crate::domain::rules::Rule;
use crate::domain::tag::Tag;
use crate::services::agent::Agent;
use crate::services::log::{Level, Log};
use crate::services::scanner::{Changes, Depth, Lineage, Process};
use crate::services::tagger::MANY_DESCRIPTORS;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Of the time at most one part in 50 goes to events.
const PARTS: u64 = 50;
/// Read at once.
const MOST_EVENTS: usize = 8192;
/// After messages were lost: meanwhile only scans find processes.
const LOST_REST_NS: u64 = 10_000_000_000;
/// Longer no event is on its way.
const ESTATE_NS: u64 = 3_000_000_000;
const MOST_ESTATES: usize = 4096;
const ANSWER_NS: u64 = 5_000_000_000;
/// Served at once.
const MOST_OPENED: usize = 4096;
/// A host that takes rules back often sends others soon. Programs take seconds to load on a slow
/// machine, and a tag can be laid down till then.
const LINGER_NS: u64 = 60_000_000_000;
const INSTEAD: &str = "new processes are found by scans, within 0.25 s";

pub struct Follower {
    source: Source,
    pace: Pace,
    has_told_of_loss: bool,
    programs: Kernel,
    has_told_of_programs: bool,
    leave: Leave,
    kept: Kept,
}

enum Source {
    Off,
    /// Not answered yet.
    Asked {
        connector: Connector,
        since_ns: u64,
    },
    Live(Connector),
    /// It told more than could be read.
    Resting {
        until_ns: u64,
    },
    Absent,
}

/// The programs in it.
enum Kernel {
    Bare,
    /// By a thread of its own: the kernel's types take long to read.
    Opening(Receiver<Programs>),
    Open(Box<Programs>),
}

/// When programs that nobody wants any more go.
#[derive(Default)]
struct Leave {
    due_ns: Option<u64>,
}

impl Leave {
    fn is_due(&mut self, now_ns: u64, is_wanted: bool) -> bool {
        if is_wanted {
            self.due_ns = None;
            return false;
        }
        let due_ns = self.due_ns.get_or_insert(now_ns.saturating_add(LINGER_NS));
        now_ns >= *due_ns
    }
}

/// What the kernel has told.
#[derive(Debug, Default)]
pub struct Heard {
    pub looks: Vec<Look>,
    /// Something was not told: only a scan of all shows it.
    pub is_incomplete: bool,
}

impl Follower {
    /// `kept`: of a predecessor, and for a successor.
    pub fn new(kept: Kept) -> Follower {
        Follower {
            kept,
            source: Source::Off,
            pace: Pace::new(PARTS),
            has_told_of_loss: false,
            programs: Kernel::Bare,
            has_told_of_programs: false,
            leave: Leave::default(),
        }
    }

    /// Listens while `is_wanted`, as far as the kernel lets it.
    pub fn tend(&mut self, now_ns: u64, is_wanted: bool, log: &mut Log) {
        self.tend_programs(now_ns, is_wanted, log);
        match &self.source {
            Source::Absent => {}
            _ if !is_wanted => self.source = Source::Off,
            Source::Resting { until_ns } if now_ns < *until_ns => {}
            Source::Off | Source::Resting { .. } => match Connector::open() {
                Ok(connector) => {
                    self.source = Source::Asked {
                        connector,
                        since_ns: now_ns,
                    };
                }
                Err(error) => self.give_up(now_ns, &error.to_string(), log),
            },
            Source::Asked { since_ns, .. } if now_ns.saturating_sub(*since_ns) > ANSWER_NS => {
                self.give_up(now_ns, "no answer; is this a container?", log);
            }
            Source::Asked { .. } | Source::Live(_) => {}
        }
    }

    fn tend_programs(&mut self, now_ns: u64, is_wanted: bool, log: &mut Log) {
        let is_left = self.leave.is_due(now_ns, is_wanted);
        match &self.programs {
            Kernel::Bare if is_wanted => {
                // A predecessor's have never stopped: they are taken over as they are.
                if let Some(programs) = Programs::of(&mut self.kept) {
                    self.programs = Kernel::Open(Box::new(programs));
                    return;
                }
                self.kept.drop_all();
                let (sender, receiver) = channel();
                // It is waited for by its answer. If there is no thread, there is none.
                let opening = std::thread::Builder::new().name("opening".into());
                let opening = opening.spawn(move || {
                    yield_to_others();
                    let _ = sender.send(Programs::open());
                });
                drop(opening);
                self.programs = Kernel::Opening(receiver);
            }
            Kernel::Opening(receiver) => match receiver.try_recv() {
                Ok(programs) => self.take_programs(now_ns, programs, log),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    let absent = Programs::absent("no thread could be started");
                    self.take_programs(now_ns, absent, log);
                }
            },
            // Of a kernel that takes none, none is wanted again.
            Kernel::Open(programs) if is_left && programs.has_any() => {
                for (name, _) in programs.parts() {
                    self.kept.forget(&name);
                }
                self.programs = Kernel::Bare;
            }
            Kernel::Bare | Kernel::Open(_) => {}
        }
    }

    fn take_programs(&mut self, now_ns: u64, programs: Programs, log: &mut Log) {
        if !std::mem::replace(&mut self.has_told_of_programs, true) {
            let without_sockets = programs.sockets.as_ref().err().map(|reason| {
                format!(
                    "the kernel does not tell of new sockets ({reason}); scans find them, \
                     within 1 s"
                )
            });
            let without_guard = programs.guard.as_ref().err().map(|reason| {
                format!(
                    "the kernel does not keep I/O priorities ({reason}): a process can set its \
                     own, and scans set it back, within 1 s"
                )
            });
            for text in without_sockets.into_iter().chain(without_guard) {
                log.add(now_ns, Level::Info, text);
            }
        }
        for (name, fd) in programs.parts() {
            self.kept.keep(&name, fd);
        }
        self.programs = Kernel::Open(Box::new(programs));
    }

    fn give_up(&mut self, now_ns: u64, reason: &str, log: &mut Log) {
        self.source = Source::Absent;
        let text = format!("the kernel's proc connector tells nothing ({reason}); {INSTEAD}");
        log.add(now_ns, Level::Info, text);
    }

    fn connector(&self) -> Option<&Connector> {
        match &self.source {
            Source::Asked { connector, .. } | Source::Live(connector) => Some(connector),
            _ => None,
        }
    }

    pub fn is_open(&self) -> bool {
        self.connector().is_some() || self.socket_events().is_some()
    }

    /// Whether it is time for further events.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.is_open() && self.pace.is_ready(now_ns)
    }

    /// Whether the kernel tells of processes and of sockets: scans may be fewer.
    pub fn is_whole(&self) -> bool {
        matches!(self.source, Source::Live(_)) && self.socket_events().is_some()
    }

    fn socket_events(&self) -> Option<&SocketEvents> {
        match &self.programs {
            Kernel::Open(programs) => programs.sockets.as_ref().ok(),
            _ => None,
        }
    }

    /// What to wait for, when it is time for further events.
    pub fn watched(&self, now_ns: u64) -> Vec<BorrowedFd<'_>> {
        if !self.pace.is_ready(now_ns) {
            return Vec::new();
        }
        let processes = self.connector().map(Connector::as_fd);
        let sockets = self.socket_events().map(SocketEvents::as_fd);
        processes.into_iter().chain(sockets).collect()
    }

    /// When it is time for further events, if it is not yet, or for programs to go.
    pub fn next_ns(&self, now_ns: u64) -> u64 {
        let leave_ns = match &self.programs {
            Kernel::Open(programs) if programs.has_any() => self.leave.due_ns,
            _ => None,
        };
        let ready_ns = if !self.is_open() || self.pace.is_ready(now_ns) {
            u64::MAX
        } else {
            self.pace.ready_ns()
        };
        ready_ns.min(leave_ns.unwrap_or(u64::MAX))
    }

    /// Events were served.
    pub fn spent(&mut self, began_ns: u64, ended_ns: u64) {
        self.pace.spent(began_ns, ended_ns);
    }

    /// The sockets that have got a port since.
    pub fn opened(&mut self) -> Vec<Opened> {
        let Kernel::Open(programs) = &mut self.programs else {
            return Vec::new();
        };
        let events = programs.sockets.iter_mut().flatten();
        events.take(MOST_OPENED).collect()
    }

    /// Reads what the kernel has told since.
    pub fn hear(&mut self, now_ns: u64, log: &mut Log) -> Heard {
        let mut events: Vec<ProcessEvent> = Vec::new();
        let mut answer = None;
        let mut error = None;
        while let Some(connector) = self.connector().filter(|_| events.len() < MOST_EVENTS) {
            match connector.next() {
                Ok(None) => break,
                Ok(Some(Message::Event(event))) => events.push(event),
                Ok(Some(Message::Answer(number))) => answer = Some(number),
                Err(other) => {
                    error = Some(other);
                    break;
                }
            }
        }
        let is_answered = self.take_answer(now_ns, answer, log);
        let is_broken = error.is_some();
        match error {
            Some(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                self.overrun(now_ns, log);
            }
            Some(error) => self.give_up(now_ns, &error.to_string(), log),
            None => {}
        }
        let looks = coalesce(events);
        if looks.len() > MOST_LOOKS {
            return Heard {
                is_incomplete: true,
                ..Heard::default()
            };
        }
        Heard {
            looks,
            is_incomplete: is_answered || is_broken,
        }
    }

    /// Whether it is the first one: the answers to other listeners come here, too.
    fn take_answer(&mut self, now_ns: u64, answer: Option<i32>, log: &mut Log) -> bool {
        let (Some(number), Source::Asked { .. }) = (answer, &self.source) else {
            return false;
        };
        if number != 0 {
            let reason = io::Error::from_raw_os_error(number);
            self.give_up(now_ns, &reason.to_string(), log);
        } else if let Source::Asked { connector, .. } =
            std::mem::replace(&mut self.source, Source::Off)
        {
            self.source = Source::Live(connector);
        }
        true
    }

    fn overrun(&mut self, now_ns: u64, log: &mut Log) {
        let until_ns = now_ns.saturating_add(LOST_REST_NS);
        self.source = Source::Resting { until_ns };
        if !std::mem::replace(&mut self.has_told_of_loss, true) {
            let seconds = LOST_REST_NS / 1_000_000_000;
            let text = format!(
                "more processes start and end than can be followed; for {seconds} s each time \
                 {INSTEAD}"
            );
            log.add(now_ns, Level::Warning, text);
        }
    }
}

/// The calling thread alone: the guest's work goes before.
fn yield_to_others() {
    // SAFETY: takes plain integers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}

/// What a process of a class leaves to children that are not known yet.
#[derive(Clone)]
pub struct Estate {
    rule: Rule,
    /// Its tag, and the priority that it had before.
    former: Option<(Tag, u16)>,
    left_ns: u64,
}

impl Agent {
    /// Looks at these processes and at no others.
    pub fn follow(&mut self, now_ns: u64, looks: &[Look]) {
        if self.is_unresolved {
            return self.scan(now_ns, Depth::Full);
        }
        let mut changes = Changes::default();
        let mut seen = Vec::new();
        let mut has_moved_family = false;
        for look in looks {
            // A child of no class is of none until it runs another program.
            let estate = look.origin.and_then(|pid| self.estate_of(pid, now_ns));
            if !look.is_changed && estate.is_none() {
                continue;
            }
            self.scanner.look_at(look.pid, now_ns, &mut changes);
            if let Some(estate) = estate {
                self.inherit_estate(look.pid, estate);
            }
            has_moved_family |= self.resolve_one(look.pid) && self.has_children(look.pid);
            seen.push(look.pid);
        }
        self.forget(now_ns, changes.gone);
        if has_moved_family {
            self.resolve();
            seen = self.pids();
        }
        self.adopt_newborn(&seen);
        for pid in seen {
            self.apply(now_ns, pid, Depth::Full);
        }
        self.keep_channel(now_ns);
        self.drop_old_estates(now_ns);
        self.save(now_ns, false);
    }

    fn has_children(&self, pid: i32) -> bool {
        let mut processes = self.scanner.processes();
        processes.any(|(_, process)| process.ppid == pid)
    }

    /// Marks sockets that have just got a port, of processes of a class.
    pub fn follow_sockets(&mut self, now_ns: u64, opened: &[Opened]) {
        let pids: BTreeSet<i32> = opened.iter().map(|opened| opened.pid).collect();
        let is_unknown = |pid: &&i32| self.scanner.process(**pid).is_none();
        let unknown = pids.iter().filter(is_unknown).map(|&pid| Look {
            pid,
            origin: None,
            is_changed: true,
        });
        let unknown: Vec<Look> = unknown.take(MOST_LOOKS).collect();
        if !unknown.is_empty() {
            self.follow(now_ns, &unknown);
        }
        for opened in opened {
            self.note_socket(opened);
        }
        // The port map before the marks: its entry is what frames are classed by.
        self.keep_channel(now_ns);
        for pid in pids {
            let process = self.scanner.process(pid);
            if process.is_some_and(|process| process.descriptors <= MANY_DESCRIPTORS) {
                self.apply(now_ns, pid, Depth::Full);
            }
        }
        self.save(now_ns, false);
    }

    fn note_socket(&mut self, opened: &Opened) {
        let Some(process) = self.scanner.process_mut(opened.pid) else {
            return;
        };
        let rule = process
            .assignment
            .map(|found| &self.rules.rules[found.rule]);
        if let Some(rule) = rule.filter(|_| opened.inode != 0) {
            let Opened { inode, local, .. } = *opened;
            self.sockets.note(process, inode, local, rule.tag);
        }
    }

    /// Of a process of a class, alive or ended lately.
    fn estate_of(&self, pid: i32, now_ns: u64) -> Option<Estate> {
        let living = self.scanner.process(pid);
        let living = living.and_then(|process| self.estate(process, now_ns));
        living.or_else(|| self.estates.get(&pid).cloned())
    }

    fn estate(&self, process: &Process, left_ns: u64) -> Option<Estate> {
        let rule = &self.rules.rules[process.assignment?.rule];
        let tagged = process.tagged.as_ref();
        let tagged = tagged.map(|tagged| (tagged.tag, tagged.base_ioprio));
        Some(Estate {
            rule: rule.clone(),
            former: tagged.or(process.former),
            left_ns,
        })
    }

    /// A process whose creator has ended by now has its class, its tag and its priority from
    /// that all the same. If it has ended itself, its children have it.
    fn inherit_estate(&mut self, pid: i32, estate: Estate) {
        let Some(process) = self.scanner.process_mut(pid) else {
            self.estates.insert(pid, estate);
            return;
        };
        if process.tagged.is_none() && process.lineage.is_none() {
            process.lineage = Some(Lineage {
                rule: estate.rule,
                parent: (0, 0),
            });
            process.former = process.former.or(estate.former);
        }
    }

    /// A process has ended, and a later event may name it as a creator.
    pub(super) fn leave_estate(&mut self, now_ns: u64, pid: i32, process: &Process) {
        if let Some(estate) = self.estate(process, now_ns) {
            self.estates.insert(pid, estate);
        }
    }

    fn drop_old_estates(&mut self, now_ns: u64) {
        let is_new = |estate: &Estate| now_ns.saturating_sub(estate.left_ns) < ESTATE_NS;
        self.estates.retain(|_, estate| is_new(estate));
        if self.estates.len() > MOST_ESTATES {
            self.estates.clear();
        }
    }

    /// Decides which rule one process is under; whether that is another than before.
    fn resolve_one(&mut self, pid: i32) -> bool {
        let direct = self.direct_rule(pid);
        let Some(process) = self.scanner.process(pid) else {
            return false;
        };
        let (ppid, before) = (process.ppid, process.assignment);
        let node = Node {
            ppid,
            direct,
            remembered: self.remembered_rule(process),
        };
        let parent = self
            .scanner
            .process(ppid)
            .and_then(|parent| parent.assignment);
        let above = Node {
            direct: parent.map(|found| found.rule),
            ..Node::default()
        };
        let family = HashMap::from([(ppid, above), (pid, node)]);
        let found = matching::assign(&family).get(&pid).copied();
        self.place(pid, found);
        let rule = |assignment: Option<Assignment>| assignment.map(|found| found.rule);
        rule(before) != rule(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_stay_while_rules_change() {
        let mut leave = Leave::default();
        assert!(!leave.is_due(0, true));
        assert!(!leave.is_due(5, false));
        assert!(!leave.is_due(5 + LINGER_NS - 1, false));
        assert!(!leave.is_due(5 + LINGER_NS, true), "wanted again");
        assert!(!leave.is_due(6 + LINGER_NS, false), "the time begins anew");
        assert!(leave.is_due(6 + 2 * LINGER_NS, false));
        assert!(leave.is_due(7 + 2 * LINGER_NS, false), "until it is wanted");
    }
}
