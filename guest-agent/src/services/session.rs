// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent's loop: one thread that waits for the port, a signal or the next
//! scan, and never for the host. Lines that cannot be written now wait in a bounded
//! buffer; while it is not empty no further table is queued, and beyond a bound
//! no further request is served or read. Requests are served one a turn, so that
//! many of them delay neither scans nor a signal.

use crate::adapters::clock::Clock;
use crate::adapters::kept::Kept;
use crate::adapters::port::{self, Port, ReadOutcome, Wants};
use crate::adapters::procfs::sys_text;
use crate::domain::framing::{Frame, LineFramer, MAX_LINE_BYTES};
use crate::domain::raise::Raise;
use crate::domain::rpc::{self, Call, Incoming};
use crate::domain::rules::Refused;
use crate::services::agent::Agent;
use crate::services::events::Events;
use crate::services::follow::{Follower, Heard};
use crate::services::log::Level;
use crate::services::raise::Raiser;
use crate::services::reports::Reports;
use crate::services::scanner::Depth;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

const NS_PER_MS: u64 = 1_000_000;
/// Between scans for new processes and sockets, while there are rules.
const QUICK_SCAN_NS: u64 = 250 * NS_PER_MS;
/// Between full scans without a host that wants the table.
const FULL_SCAN_NS: u64 = 1000 * NS_PER_MS;
/// Between looks at a port whose host side is closed, or at a missing port.
const HOST_AWAY_NS: u64 = 200 * NS_PER_MS;
const PORT_RETRY_NS: u64 = 1000 * NS_PER_MS;
/// Of the time at most one part in four goes to scans, however slow this guest is.
const REST_PER_SCAN: u64 = 3;
/// One scan may have taken as long as this guest was stopped.
const LONGEST_REST_NS: u64 = 30_000 * NS_PER_MS;
/// A table younger than this answers get_processes as it is.
const FRESH_TABLE_NS: u64 = 200 * NS_PER_MS;
const READ_BYTES: usize = 64 * 1024;
const STOP_SERVING_BYTES: usize = 2 * MAX_LINE_BYTES;
/// Beside the state file.
const REPORT_SOCKET: &str = "report.sock";
const EVENT_SOCKET: &str = "events.sock";
pub const RAISED_FILE: &str = "raised.json";
const STOP_LOGGING_BYTES: usize = MAX_LINE_BYTES / 4;

pub struct Session {
    agent: Agent,
    follower: Follower,
    clock: Clock,
    reports: Reports,
    events: Events,
    port_path: PathBuf,
    port: Option<Port>,
    framer: LineFramer,
    /// Read and not served yet: at most the lines of one read.
    pending: VecDeque<Frame>,
    out: Vec<u8>,
    /// The host has spoken: it gets tables and messages.
    is_greeted: bool,
    is_host_away: bool,
    look_at_port_ns: u64,
    quick_scan_ns: u64,
    full_scan_ns: u64,
    scanned_table_ns: Option<u64>,
    /// After a scan that took long.
    next_scan_ns: u64,
}

impl Session {
    /// `folder`: of the sockets to which programs report, and ask for events. `raises`: classes
    /// whose CPU priority is raised while they are limited. `kept`: of a predecessor.
    pub fn new(
        mut agent: Agent,
        clock: Clock,
        port_path: PathBuf,
        folder: &Path,
        raises: &[Raise],
        kept: Kept,
    ) -> Session {
        let reports = Reports::open(&folder.join(REPORT_SOCKET), clock.now_ns(), &mut agent);
        let raiser = Raiser::new(folder.join(RAISED_FILE), raises);
        let events_path = folder.join(EVENT_SOCKET);
        let events = Events::open(&events_path, raiser, clock.now_ns(), &mut agent);
        // A predecessor on this very port had a host that cannot know of the
        // change: it goes on getting tables.
        let is_greeted = agent.has_work();
        Session {
            agent,
            follower: Follower::new(kept),
            clock,
            reports,
            events,
            port_path,
            port: None,
            framer: LineFramer::new(MAX_LINE_BYTES),
            pending: VecDeque::new(),
            out: Vec::new(),
            is_greeted,
            is_host_away: false,
            look_at_port_ns: 0,
            quick_scan_ns: 0,
            full_scan_ns: 0,
            scanned_table_ns: None,
            next_scan_ns: 0,
        }
    }

    /// Runs until SIGTERM or SIGINT, then takes all tags off.
    pub fn run(mut self) -> io::Result<()> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGINT);
        signals.thread_block()?;
        let stop = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns >= self.look_at_port_ns {
                self.look_at_port(now_ns);
            }
            let is_wanted = self.agent.has_work();
            self.follower.tend(now_ns, is_wanted, &mut self.agent.log);
            self.scan_if_due(now_ns);
            self.reports
                .serve(now_ns, &mut self.agent, &mut self.follower);
            self.events.serve(now_ns, &mut self.agent);
            self.serve_one();
            self.send_streams(now_ns);
            self.send_log();
            self.flush();
            let wants = Wants {
                read: self.can_read(),
                write: !self.out.is_empty(),
            };
            let watched = self
                .port
                .as_ref()
                .filter(|_| !self.is_host_away && (wants.read || wants.write));
            let now_ns = self.clock.now_ns();
            let next_ns = self.next_event_ns().min(self.follower.next_ns(now_ns));
            let next_ns = next_ns.min(self.events.next_ns(now_ns));
            let mut others: Vec<BorrowedFd> = self.follower.watched(now_ns);
            others.extend(self.reports.waits_for(now_ns));
            others.extend(self.events.watched(now_ns));
            let port = watched.map(|port| (port, wants));
            let timeout_ns = next_ns.saturating_sub(now_ns);
            let wake = port::wait(stop.as_fd(), &others, port, timeout_ns)?;
            if wake.signal {
                self.events.end(&self.agent);
                self.agent.stop(self.clock.now_ns());
                return Ok(());
            }
            if wake.other && self.follower.is_due(self.clock.now_ns()) {
                self.follow();
            }
            if wake.port {
                self.flush();
                self.receive_if_able();
            }
            // A full buffer has no reader any more, and until it is empty
            // nothing is read that would show that.
            if wake.hang_up && !self.has_room() {
                self.host_went();
            }
        }
    }

    /// Serves what the kernel has told of processes and sockets.
    fn follow(&mut self) {
        if !self.follower.is_open() {
            return;
        }
        let began_ns = self.clock.now_ns();
        let heard = self.follower.hear(began_ns, &mut self.agent.log);
        let Heard {
            looks,
            is_incomplete,
        } = heard;
        self.agent.follow(began_ns, &looks);
        // A process is known before its sockets are.
        let opened = self.follower.opened();
        if !opened.is_empty() {
            self.agent.follow_sockets(began_ns, &opened);
        }
        if is_incomplete {
            let soon_ns = self.next_scan_ns.max(began_ns);
            self.full_scan_ns = self.full_scan_ns.min(soon_ns);
        }
        self.follower.spent(began_ns, self.clock.now_ns());
    }

    fn has_room(&self) -> bool {
        self.out.len() < STOP_SERVING_BYTES
    }

    fn can_read(&self) -> bool {
        self.has_room() && self.pending.is_empty()
    }

    fn next_event_ns(&self) -> u64 {
        if self.has_room() && !self.pending.is_empty() {
            return 0;
        }
        let can_tell = self.out.is_empty();
        let mut next_ns = self.reports.next_event_ns(self.clock.now_ns(), can_tell);
        if self.port.is_none() || self.is_host_away {
            next_ns = next_ns.min(self.look_at_port_ns);
        }
        if self.wants_quick_scans() {
            next_ns = next_ns.min(self.quick_scan_ns);
        }
        if self.wants_table() || self.agent.has_work() {
            next_ns = next_ns.min(self.full_scan_ns);
        }
        next_ns
    }

    /// They look for processes and sockets of which the kernel does not tell.
    fn wants_quick_scans(&self) -> bool {
        self.agent.has_work() && !self.follower.is_whole()
    }

    fn wants_table(&self) -> bool {
        self.is_greeted && self.port.is_some() && !self.is_host_away
    }

    fn look_at_port(&mut self, now_ns: u64) {
        self.look_at_port_ns = now_ns.saturating_add(PORT_RETRY_NS);
        if self.port.is_none() {
            match port::find(&self.port_path).and_then(|path| {
                Port::open(&path)
                    .map_err(|error| format!("cannot open {}: {error}", path.display()))
            }) {
                Ok(port) => {
                    self.port = Some(port);
                    self.is_host_away = false;
                }
                Err(text) => {
                    return self.agent.log.add(
                        now_ns,
                        Level::Warning,
                        format!("{text}; trying on"),
                    );
                }
            }
        }
        self.receive_if_able();
    }

    fn receive_if_able(&mut self) {
        if !self.can_read() {
            return;
        }
        let mut buffer = [0; READ_BYTES];
        let Some(port) = &mut self.port else { return };
        match port.read(&mut buffer) {
            ReadOutcome::Data(length) => {
                self.is_host_away = false;
                self.pending.extend(self.framer.feed(&buffer[..length]));
            }
            ReadOutcome::Nothing => self.is_host_away = false,
            ReadOutcome::HostAway => self.host_went(),
            ReadOutcome::PortGone => {
                self.host_went();
                self.port = None;
            }
        }
    }

    /// Rules and tags stay: only the talk ends.
    fn host_went(&mut self) {
        let now_ns = self.clock.now_ns();
        if !self.is_host_away {
            self.framer.reset();
            self.pending.clear();
            self.out.clear();
            self.is_greeted = false;
            self.reports.watch(false);
        }
        self.is_host_away = true;
        self.look_at_port_ns = now_ns.saturating_add(HOST_AWAY_NS);
    }

    fn serve_one(&mut self) {
        if !self.has_room() {
            return;
        }
        let line = match self.pending.pop_front() {
            None => return,
            Some(Frame::Line(line)) => line,
            Some(Frame::TooLong) => {
                let message = format!("a line of more than {MAX_LINE_BYTES} bytes was discarded");
                return self.send(&rpc::parse_error(&message));
            }
        };
        match rpc::parse_line(&line, self.agent.max_tag) {
            Incoming::Refused(answer) => self.send(&answer),
            Incoming::Ignored => {}
            Incoming::Call { id, call } => {
                self.is_greeted = true;
                self.answer(id, call);
            }
        }
    }

    fn answer(&mut self, id: Option<Value>, call: Call) {
        let now_ns = self.clock.now_ns();
        let result = match call {
            Call::Hello { protocol } => {
                self.agent.set_protocol(now_ns, protocol);
                self.greeting()
            }
            Call::SetRules(rules) => {
                let is_whole = self.agent.protocol < rpc::REFUSES_ONE_RULE;
                if let Some(first) = rules.refused.first().filter(|_| is_whole) {
                    let Some(id) = id else { return };
                    return self.send(&rpc::invalid_params(id, &first.error));
                }
                let revision = rules.revision;
                let refused: Vec<Value> = rules.refused.iter().map(shown).collect();
                // Before it scans: of processes that start meanwhile the kernel tells.
                let is_wanted = !rules.rules.is_empty() || self.agent.has_wishes();
                self.follower.tend(now_ns, is_wanted, &mut self.agent.log);
                let matched = self.agent.set_rules(now_ns, *rules);
                self.quick_scan_ns = now_ns.saturating_add(QUICK_SCAN_NS);
                self.full_scan_ns = self
                    .full_scan_ns
                    .min(now_ns.saturating_add(self.interval_ns()));
                self.rest(now_ns);
                let mut result = json!({"revision": revision, "matched": matched});
                if !is_whole {
                    result["refused"] = refused.into();
                }
                result
            }
            Call::WatchStreams => {
                self.reports.watch(true);
                json!({})
            }
            Call::PreviewRule(condition) => {
                let previewed = self.agent.preview_rule(now_ns, &condition);
                self.rest(now_ns);
                match previewed {
                    Ok(pids) => json!({"pids": pids}),
                    Err(error) => {
                        let Some(id) = id else { return };
                        return self.send(&rpc::invalid_params(id, &error));
                    }
                }
            }
            Call::GetProcesses => {
                let is_fresh = self
                    .scanned_table_ns
                    .is_some_and(|at| now_ns.saturating_sub(at) < FRESH_TABLE_NS);
                if !is_fresh {
                    self.agent.scan(now_ns, Depth::Table);
                    self.scanned_table_ns = Some(now_ns);
                }
                let Some(id) = id else { return };
                let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
                return self.send_table(&head);
            }
        };
        if let Some(id) = id {
            self.send(&rpc::result(id, result));
        }
    }

    fn greeting(&self) -> Value {
        let mut greeting = json!({
            "protocol": self.agent.protocol,
            "agent_version": crate::VERSION,
            "kernel": sys_text("/proc/sys/kernel/osrelease"),
            "hostname": sys_text("/proc/sys/kernel/hostname"),
            "boot_id": self.agent.boot_id,
            "max_tag": self.agent.max_tag,
        });
        let tells = self.agent.protocol >= rpc::TELLS_OF_CHANNEL;
        if let Some(state) = tells.then(|| self.agent.channel_state()).flatten() {
            greeting["channel"] = state;
        }
        greeting
    }

    fn interval_ns(&self) -> u64 {
        self.agent.rules.interval_ms * NS_PER_MS
    }

    fn scan_if_due(&mut self, now_ns: u64) {
        if now_ns >= self.full_scan_ns && (self.wants_table() || self.agent.has_work()) {
            // A scan forgets processes that ended, and an event may name one as a creator.
            self.follow();
            self.full_scan(now_ns);
            self.rest(now_ns);
        } else if now_ns >= self.quick_scan_ns && self.wants_quick_scans() {
            self.quick_scan_ns = now_ns.saturating_add(QUICK_SCAN_NS);
            self.agent.scan(now_ns, Depth::Quick);
            self.rest(now_ns);
        }
    }

    /// Puts further scans off by the length of the scan that began then.
    fn rest(&mut self, began_ns: u64) {
        let ended_ns = self.clock.now_ns();
        self.next_scan_ns = rested(0, began_ns, ended_ns);
        self.quick_scan_ns = rested(self.quick_scan_ns, began_ns, ended_ns);
        self.full_scan_ns = rested(self.full_scan_ns, began_ns, ended_ns);
    }

    fn full_scan(&mut self, now_ns: u64) {
        self.quick_scan_ns = now_ns.saturating_add(QUICK_SCAN_NS);
        let interval_ns = self.interval_ns();
        let table_due_ns = self.wants_table().then(|| {
            self.scanned_table_ns
                .map_or(now_ns, |at| at.saturating_add(interval_ns))
        });
        let has_work = self.agent.has_work();
        let (depth, next_ns) = plan_full_scan(now_ns, table_due_ns, interval_ns, has_work);
        self.full_scan_ns = next_ns;
        if depth != Depth::Table {
            return self.agent.scan(now_ns, depth);
        }
        self.agent.scan(now_ns, Depth::Table);
        self.scanned_table_ns = Some(now_ns);
        // A host that does not keep up gets fewer tables, not later ones.
        if self.out.is_empty() {
            self.send_table(r#"{"jsonrpc":"2.0","method":"processes","params":"#);
        }
    }

    fn send_table(&mut self, head: &str) {
        let room = MAX_LINE_BYTES - head.len() - "}\n".len();
        let table = self.agent.table(room);
        for part in [head, &table, "}\n"] {
            self.out.extend_from_slice(part.as_bytes());
        }
        self.flush();
    }

    fn send(&mut self, message: &Value) {
        self.out.extend_from_slice(message.to_string().as_bytes());
        self.out.push(b'\n');
    }

    fn send_streams(&mut self, now_ns: u64) {
        // A host that does not keep up gets fewer, not later ones.
        if self.out.is_empty() {
            if let Some(params) = self.reports.message(now_ns) {
                self.send(&rpc::notification("streams", params));
            }
        }
    }

    fn send_log(&mut self) {
        let can_tell = self.wants_table() && self.out.len() < STOP_LOGGING_BYTES;
        if !can_tell {
            return;
        }
        for (level, text) in self.agent.log.take() {
            let params = json!({"level": level.name(), "text": text});
            self.send(&rpc::notification("log", params));
        }
    }

    fn flush(&mut self) {
        let Some(port) = self.port.as_mut().filter(|_| !self.is_host_away) else {
            return;
        };
        let mut sent = 0;
        while sent < self.out.len() {
            match port.write(&self.out[sent..]) {
                Ok(0) => break,
                Ok(length) => sent += length,
                Err(_) => {
                    self.host_went();
                    self.port = None;
                    return;
                }
            }
        }
        self.out.drain(..sent);
    }
}

fn shown(refused: &Refused) -> Value {
    json!({"id": refused.id, "why": refused.why()})
}

/// When a scan that is due then may begin after one that took so long.
fn rested(due_ns: u64, began_ns: u64, ended_ns: u64) -> u64 {
    let rest_ns = REST_PER_SCAN.saturating_mul(ended_ns.saturating_sub(began_ns));
    due_ns.max(ended_ns.saturating_add(rest_ns.min(LONGEST_REST_NS)))
}

/// How far a full scan goes, and when the next one is due. Without a host no
/// table is; with rules a change of program is noticed within a second even if
/// the host asks for tables less often.
fn plan_full_scan(
    now_ns: u64,
    table_due_ns: Option<u64>,
    interval_ns: u64,
    has_work: bool,
) -> (Depth, u64) {
    let second_ns = now_ns.saturating_add(FULL_SCAN_NS);
    match table_due_ns {
        None => (Depth::Full, second_ns),
        Some(due_ns) if due_ns > now_ns.saturating_add(5 * NS_PER_MS) => {
            (Depth::Full, second_ns.min(due_ns))
        }
        Some(_) => {
            let due_ns = now_ns.saturating_add(interval_ns);
            let next_ns = if has_work {
                due_ns.min(second_ns)
            } else {
                due_ns
            };
            (Depth::Table, next_ns)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When tables come in ten seconds, and how many full scans there are.
    fn schedule(interval_ms: u64, has_host: bool, has_work: bool) -> (Vec<u64>, usize) {
        let interval_ns = interval_ms * NS_PER_MS;
        let (mut now_ns, mut table_due_ns) = (0, has_host.then_some(0));
        let (mut tables_ms, mut scans) = (Vec::new(), 0);
        while now_ns < 10_000 * NS_PER_MS {
            let (depth, next_ns) = plan_full_scan(now_ns, table_due_ns, interval_ns, has_work);
            if depth == Depth::Table {
                tables_ms.push(now_ns / NS_PER_MS);
                table_due_ns = Some(now_ns + interval_ns);
            }
            scans += 1;
            now_ns = next_ns;
        }
        (tables_ms, scans)
    }

    #[test]
    fn tables_come_every_interval_whatever_it_is() {
        for interval_ms in [100, 200, 1000, 1500, 2000, 3300, 10_000] {
            for has_work in [false, true] {
                let (tables_ms, _) = schedule(interval_ms, true, has_work);
                let apart: Vec<u64> = tables_ms.windows(2).map(|at| at[1] - at[0]).collect();
                assert_eq!(tables_ms[0], 0);
                assert!(apart.iter().all(|&ms| ms == interval_ms), "{apart:?}");
                assert_eq!(tables_ms.len() as u64, 10_000_u64.div_ceil(interval_ms));
            }
        }
    }

    #[test]
    fn a_slow_scan_leaves_three_parts_of_four_to_others() {
        let quick_ms = |scan_ms: u64| {
            let (mut now_ns, mut scans) = (0, 0);
            while now_ns < 60_000 * NS_PER_MS {
                let ended_ns = now_ns + scan_ms * NS_PER_MS;
                now_ns = rested(now_ns + QUICK_SCAN_NS, now_ns, ended_ns);
                scans += 1;
            }
            scans * scan_ms
        };
        // As long as it is quick, it is as often as ever.
        assert_eq!(quick_ms(10), 240 * 10);
        for scan_ms in [50, 62, 63, 200, 1000, 10_000] {
            assert!(quick_ms(scan_ms) <= 15_000 + scan_ms, "{scan_ms} ms");
        }
        let stalled_ns = 600_000 * NS_PER_MS;
        assert_eq!(rested(0, 0, stalled_ns), stalled_ns + LONGEST_REST_NS);
        assert_eq!(rested(u64::MAX, 1, 2), u64::MAX);
        assert_eq!(rested(5, 0, u64::MAX), u64::MAX);
    }

    #[test]
    fn rules_are_looked_after_every_second() {
        assert_eq!(schedule(10_000, true, true).1, 10);
        assert_eq!(schedule(10_000, true, false).1, 1);
        assert_eq!(schedule(100, false, true), (vec![], 10));
    }
}
