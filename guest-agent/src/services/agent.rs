// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent's state and its work at each scan: look, decide which process
//! belongs to which class, tag and untag, remember.

use crate::adapters::channel::Device;
use crate::adapters::clock::{thread_cpu_ns, wall_ns};
use crate::adapters::ioprio;
use crate::adapters::procfs::sys_text;
use crate::adapters::state::{self, SavedHeir, SavedLineage, SavedProcess, SavedState};
use crate::domain::follow::Look;
use crate::domain::matching::{self, INIT, Node};
use crate::domain::rpc::{self, ParamError};
use crate::domain::rules::RuleSet;
use crate::domain::shape::Wish;
use crate::domain::table::{Head, Row, render, unit_of};
use crate::domain::tag::Tag;
use crate::domain::tagging::TaggedProcess;
use crate::services::channel::Channel;
use crate::services::follow::Estate;
use crate::services::log::{Level, Log};
use crate::services::scanner::{Changes, Depth, Lineage, Process, Scanner};
use crate::services::servers::Servers;
use crate::services::shape::rule_id;
use crate::services::tagger::{self, Heritage, MANY_DESCRIPTORS, SocketTagger};
use nix::fcntl::Flock;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::path::PathBuf;

const SAVE_EVERY_NS: u64 = 1_000_000_000;
/// Of the time at most one part in so many goes to saves, and to descriptors of processes that
/// have many: 100,000 sockets are long to list, and long to write down.
const PARTS: u64 = 100;
/// Longer nothing waits, however slow this guest is.
const LONGEST_REST_NS: u64 = 60_000_000_000;
/// Of a preview; a table has no more rows.
const MOST_PREVIEWED: usize = 4096;
/// Of processes that no rule matches.
const DEFAULT_CLASS: &str = "default";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How the state that is written down was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The agent goes on: its next tags are not in the file yet.
    Open,
    /// Every tag is off.
    Clean,
}

pub struct Agent {
    pub log: Log,
    pub rules: RuleSet,
    /// Of root of this guest; those in force are rules, too.
    pub(super) wishes: Vec<Wish>,
    pub max_tag: u8,
    /// As the host greeted last, this agent or its predecessor.
    pub protocol: u64,
    pub boot_id: String,
    pub(super) scanner: Scanner,
    pub(super) sockets: SocketTagger,
    /// Of an agent that serves.
    channel: Option<Channel>,
    servers: Servers,
    state_path: Option<PathBuf>,
    /// Of the state file, for as long as this agent lives.
    _lock: Option<Flock<File>>,
    pub(super) is_dirty: bool,
    /// The assignments are of rules that are no longer in force.
    pub(super) is_unresolved: bool,
    next_save_ns: u64,
    /// Between looks at the descriptors of a process that has many.
    descriptors_every_ns: u64,
    page_bytes: u64,
    /// Of processes that ended lately.
    pub(super) estates: HashMap<i32, Estate>,
}

impl Agent {
    /// With a state file, takes up the rules and tags of a predecessor.
    pub fn new(now_ns: u64, state_path: Option<PathBuf>, channel: Channel) -> io::Result<Agent> {
        let lock = match &state_path {
            Some(path) => state::lock(path)?,
            None => None,
        };
        let mut log = Log::default();
        let max_tag = ioprio::probe_max_tag().unwrap_or_else(|error| {
            let text =
                format!("cannot set I/O priorities ({error}); run as root, or with CAP_SYS_NICE");
            log.add(now_ns, Level::Error, text);
            ioprio::TAGS_WITHOUT_HINT
        });
        let mut agent = Agent {
            log,
            max_tag,
            state_path,
            _lock: lock,
            channel: Some(channel),
            ..Agent::observer()?
        };
        agent.take_up(now_ns)?;
        agent.keep_channel(now_ns);
        Ok(agent)
    }

    /// Takes off the tags of an agent that was killed; another agent left none. The rules
    /// stay in the state file for a successor.
    pub fn take_off_left(now_ns: u64, state_path: PathBuf, channel: Channel) -> io::Result<()> {
        let boot_id = sys_text(BOOT_ID);
        match SavedState::load(&state_path, &boot_id).map_err(io::Error::other)? {
            Some(saved) if !saved.is_clean => {}
            _ => return Ok(()),
        }
        Agent::new(now_ns, Some(state_path), channel)?.stop(now_ns);
        Ok(())
    }

    /// Looks and never touches, unless it is given rules.
    pub fn observer() -> io::Result<Agent> {
        Ok(Agent {
            log: Log::default(),
            rules: RuleSet::none(),
            wishes: Vec::new(),
            max_tag: Tag::MAX,
            protocol: rpc::OLDEST_PROTOCOL,
            boot_id: sys_text(BOOT_ID),
            scanner: Scanner::new()?,
            sockets: SocketTagger::default(),
            channel: None,
            servers: Servers::default(),
            state_path: None,
            _lock: None,
            is_dirty: false,
            is_unresolved: false,
            next_save_ns: 0,
            descriptors_every_ns: 0,
            page_bytes: procfs::page_size(),
            estates: HashMap::new(),
        })
    }

    /// A successor on an open port is not greeted before it is asked for more.
    pub fn set_protocol(&mut self, now_ns: u64, protocol: u64) {
        if protocol != self.protocol {
            self.protocol = protocol;
            self.is_dirty = true;
            self.save(now_ns, true);
        }
    }

    /// Replaces all rules and acts at once. The number of processes matched.
    pub fn set_rules(&mut self, now_ns: u64, rules: RuleSet) -> usize {
        // A host asks again where it has waited for long, which more work would make longer.
        if rules.params != self.rules.params || self.is_unresolved {
            self.settle(now_ns);
            self.replace_rules(now_ns, rules);
            self.save(now_ns, true);
        }
        self.scanner
            .processes()
            .filter(|(_, process)| process.assignment.is_some())
            .count()
    }

    /// Tags with which threads, children and connections were born since the last
    /// scan are known only as long as the old rules are, so these are seen to
    /// first. Those born while tags change show after that.
    pub(super) fn settle(&mut self, now_ns: u64) {
        if self.has_work() {
            self.look(now_ns, Depth::Full);
        }
    }

    fn replace_rules(&mut self, now_ns: u64, rules: RuleSet) {
        self.rules = rules;
        self.add_wishes();
        self.estates.clear();
        self.follow_links();
        self.match_anew();
        self.is_dirty = true;
        self.look(now_ns, Depth::Full);
        self.look(now_ns, Depth::Quick);
    }

    pub(super) fn match_anew(&mut self) {
        for pid in self.pids() {
            if let Some(process) = self.scanner.process_mut(pid) {
                process.direct = None;
            }
        }
        self.is_unresolved = true;
    }

    /// Whether a rule's program is another file than before.
    fn follow_links(&mut self) -> bool {
        let proc = &self.scanner.proc;
        let mut has_changed = false;
        for rule in &mut self.rules.rules {
            has_changed |= rule.condition.follow_links(|path| proc.file_of(path).ok());
        }
        has_changed
    }

    pub fn has_work(&self) -> bool {
        !self.rules.rules.is_empty() || self.is_unresolved
    }

    pub fn scan(&mut self, now_ns: u64, depth: Depth) {
        self.descriptors_every_ns = self.descriptors_period_ns();
        self.look(now_ns, depth);
        // Other looks are at all that there is, as rules end or begin.
        self.descriptors_every_ns = 0;
        self.save(now_ns, false);
    }

    fn descriptors_period_ns(&self) -> u64 {
        let many = self.scanner.processes();
        let many = many.filter(|(_, process)| process.descriptors > MANY_DESCRIPTORS);
        rest_ns(many.map(|(_, process)| process.descriptors_took_ns).sum())
    }

    /// The table as JSON text of at most `limit_bytes`, as of the last scan.
    pub fn table(&self, limit_bytes: usize) -> String {
        let rows: Vec<Row> = self
            .scanner
            .processes()
            .map(|(pid, process)| self.row(pid, process))
            .collect();
        let head = Head {
            time_ns: wall_ns(),
            revision: self.rules.revision,
            interval_ms: self.rules.interval_ms,
        };
        render(head, &rows, limit_bytes)
    }

    /// Which processes each rule holds now: (pid, command, class, rule).
    pub fn matched<'a>(&'a self) -> Vec<(i32, &'a str, &'a str, &'a str)> {
        let of_rule = |(pid, process): (i32, &'a Process)| {
            let rule = &self.rules.rules[process.assignment?.rule];
            Some((pid, &process.comm[..], &rule.class[..], &rule.id[..]))
        };
        self.scanner.processes().filter_map(of_rule).collect()
    }

    /// Finds the processes that match and touches none.
    pub fn preview(&mut self, now_ns: u64, rules: RuleSet) -> io::Result<()> {
        self.rules = rules;
        self.follow_links();
        self.scanner.scan(now_ns, Depth::Full)?;
        self.resolve();
        Ok(())
    }

    /// The processes for which a rule's condition holds now, whichever rules there are.
    pub fn preview_rule(&mut self, now_ns: u64, condition: &Value) -> Result<Vec<i32>, ParamError> {
        let mut condition = self.rules.further(condition)?;
        condition.follow_links(|path| self.scanner.proc.file_of(path).ok());
        self.scan(now_ns, Depth::Full);
        Ok(self
            .scanner
            .processes()
            .filter(|(pid, process)| !is_exempt(*pid) && condition.holds(&process.facts))
            .map(|(pid, _)| pid)
            .take(MOST_PREVIEWED)
            .collect())
    }

    /// Takes every tag off. The rules and wishes stay in the state file for a successor, and
    /// the heirs of each: of an orphan nothing else would tell.
    pub fn stop(&mut self, now_ns: u64) {
        let params = self.rules.params.clone();
        self.settle(now_ns);
        let lineages = self.lineages();
        self.replace_rules(now_ns, RuleSet::none());
        // Nothing is left to do unless /proc could not be listed.
        for pid in self.pids() {
            self.untag(now_ns, pid);
        }
        for (pid, start_time_ticks, lineage) in lineages {
            self.inherit(pid, start_time_ticks, lineage);
        }
        if let Some(channel) = &mut self.channel {
            if let Ok((device, _)) = channel.device() {
                self.servers.end(device);
            }
            channel.end();
        }
        self.rules.params = params;
        self.save_as(now_ns, End::Clean);
    }

    /// (pid, start time, lineage) of each heir.
    fn lineages(&self) -> Vec<(i32, u64, Lineage)> {
        self.scanner
            .processes()
            .filter_map(|(pid, process)| {
                let lineage = process.lineage.clone()?;
                Some((pid, process.facts.start_time_ticks, lineage))
            })
            .collect()
    }

    /// If the pid is not another process's by now.
    fn inherit(&mut self, pid: i32, start_time_ticks: u64, lineage: Lineage) {
        if let Some(process) = self
            .scanner
            .process_mut(pid)
            .filter(|process| process.facts.start_time_ticks == start_time_ticks)
        {
            process.lineage = Some(lineage);
        }
    }

    /// Of the rules in force.
    fn tags(&self) -> BTreeSet<Tag> {
        self.rules.rules.iter().map(|rule| rule.tag).collect()
    }

    pub(super) fn pids(&self) -> Vec<i32> {
        self.scanner.processes().map(|(pid, _)| pid).collect()
    }

    fn row<'a>(&'a self, pid: i32, process: &'a Process) -> Row<'a> {
        let rule = process
            .assignment
            .map(|assignment| &self.rules.rules[assignment.rule]);
        Row {
            pid,
            ppid: process.ppid,
            start_time_ticks: process.facts.start_time_ticks,
            comm: &process.comm,
            exe: &process.facts.exe,
            cmdline: &process.facts.cmdline,
            user: &process.facts.user,
            unit: unit_of(&process.facts.cgroup),
            cgroup: &process.facts.cgroup,
            class: rule.map(|rule| rule.class.as_str()),
            rule: rule.map(|rule| rule.id.as_str()),
            inherited: process
                .assignment
                .is_some_and(|assignment| assignment.inherited),
            threads: process.threads,
            cpu_ratio: process.rates.cpu_ratio,
            rss_bytes: process.rss_pages.saturating_mul(self.page_bytes),
            read_bps: process.rates.read_bps,
            write_bps: process.rates.write_bps,
        }
    }

    pub(super) fn look(&mut self, now_ns: u64, depth: Depth) {
        let changes = match self.scanner.scan(now_ns, depth) {
            Ok(changes) => changes,
            Err(error) => {
                // Of rules that are gone nothing may be left to refer to.
                if self.is_unresolved {
                    self.resolve();
                }
                let text = format!(
                    "cannot list /proc ({error}); tags stay as they are until it can be listed"
                );
                return self.log.add(now_ns, Level::Error, text);
            }
        };
        self.act(now_ns, depth, changes);
    }

    /// On what a scan has found.
    fn act(&mut self, now_ns: u64, depth: Depth, changes: Changes) {
        let Changes { any, gone } = changes;
        if depth != Depth::Quick && self.follow_links() {
            self.match_anew();
        }
        self.forget(now_ns, gone);
        if any || self.is_unresolved {
            self.resolve();
            if self.end_wishes() {
                self.resolve();
            }
            self.adopt_newborn(&self.pids());
            self.is_unresolved = false;
        }
        for pid in self.pids() {
            self.apply(now_ns, pid, depth);
        }
        self.keep_channel(now_ns);
    }

    /// Brings the port map into step with the sockets.
    pub fn keep_channel(&mut self, now_ns: u64) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        let ports = &mut self.sockets.ports;
        if channel.wants_tails(now_ns, ports) {
            let tagged = self.scanner.processes();
            let tagged = tagged.filter(|(_, process)| process.tagged.is_some());
            let pids = std::iter::once(INIT).chain(tagged.map(|(pid, _)| pid));
            channel.settle_tails(now_ns, ports, &self.scanner.proc, pids);
        }
        let order = (!self.rules.params.is_null()).then(|| self.rules.tags_in_order());
        channel.keep(now_ns, order, ports, &mut self.log);
        self.servers
            .keep(now_ns, channel.device(), ports, &mut self.log);
    }

    /// The device and its generation; the error says why there is none.
    pub fn device(&self) -> Result<(&Device, u64), String> {
        match &self.channel {
            Some(channel) => channel.device(),
            None => Err("an observer has no channel".to_owned()),
        }
    }

    /// The class of a process that reports, which may be too young to be known; or the class
    /// that root names.
    pub fn class_of_sender(
        &mut self,
        now_ns: u64,
        (pid, uid): (i32, u32),
        wanted: Option<&str>,
    ) -> Result<Option<Tag>, String> {
        // Without rules all are of one class, and nothing would forget those that end.
        let rule = if self.has_work() {
            self.look_at_sender(now_ns, pid)?
        } else {
            None
        };
        let rule = rule.map(|rule| &self.rules.rules[rule]);
        let (own, tag) = rule.map_or((DEFAULT_CLASS, None), |rule| {
            (rule.class.as_str(), Some(rule.tag))
        });
        match wanted {
            None => Ok(tag),
            Some(name) if name == own => Ok(tag),
            Some(name) if uid == 0 => self.tag_of_class(name),
            Some(name) => Err(format!(
                "class: {name:?} is not the class of process {pid}, which is {own:?}: leave it out"
            )),
        }
    }

    /// The rule that the process is under. Anybody may send, so it is looked at alone: a look at
    /// all for each short process would be many.
    fn look_at_sender(&mut self, now_ns: u64, pid: i32) -> Result<Option<usize>, String> {
        if self.scanner.process(pid).is_none() {
            let look = Look {
                pid,
                origin: None,
                is_changed: true,
            };
            self.follow(now_ns, &[look]);
        }
        match self.scanner.process(pid) {
            Some(process) => Ok(process.assignment.map(|found| found.rule)),
            None => Err(format!(
                "process {pid} had ended before its report was read, so its class is not known"
            )),
        }
    }

    pub(super) fn tag_of_class(&self, name: &str) -> Result<Option<Tag>, String> {
        if name == DEFAULT_CLASS {
            return Ok(None);
        }
        let classes = self.rules.params["classes"].as_array();
        let found = classes
            .into_iter()
            .flatten()
            .find(|class| class["name"] == name);
        let tag = found.and_then(|class| Tag::new(class["tag"].as_u64()?));
        let unknown = || {
            let granted: Vec<&str> = classes
                .into_iter()
                .flatten()
                .filter_map(|class| class["name"].as_str())
                .collect();
            let granted = match granted.is_empty() {
                true => "none".to_owned(),
                false => granted.join(", "),
            };
            format!(
                "class: the host has granted no class {name:?} to this guest; granted: {granted}"
            )
        };
        tag.map(Some).ok_or_else(unknown)
    }

    /// The member `channel` of the greeting.
    pub fn channel_state(&self) -> Option<Value> {
        self.channel.as_ref().map(Channel::state)
    }

    /// Of processes that ended.
    pub(super) fn forget(&mut self, now_ns: u64, gone: Vec<(i32, Box<Process>)>) {
        for (pid, process) in gone {
            self.is_dirty |= process.tagged.is_some();
            if !self.is_unresolved {
                self.leave_estate(now_ns, pid, &process);
            }
            self.sockets.forget(pid, &process);
        }
    }

    /// The rule that matches the process itself.
    pub(super) fn direct_rule(&mut self, pid: i32) -> Option<usize> {
        let rules = &self.rules;
        let process = self.scanner.process_mut(pid)?;
        let facts = &process.facts;
        *process.direct.get_or_insert_with(|| {
            if is_exempt(pid) {
                None
            } else {
                rules.first_match(facts)
            }
        })
    }

    /// Decides which rule each process is under.
    pub(super) fn resolve(&mut self) {
        let mut nodes = HashMap::new();
        for pid in self.pids() {
            let direct = self.direct_rule(pid);
            let Some(process) = self.scanner.process(pid) else {
                continue;
            };
            let ppid = process.ppid;
            nodes.insert(
                pid,
                Node {
                    ppid,
                    direct,
                    remembered: None,
                },
            );
        }
        let remembered: Vec<(i32, usize)> = self
            .scanner
            .processes()
            .filter_map(|(pid, process)| Some((pid, self.remembered_rule(process)?)))
            .collect();
        for (pid, rule) in remembered {
            if let Some(node) = nodes.get_mut(&pid) {
                node.remembered = Some(rule);
            }
        }
        let assigned = matching::assign(&nodes);
        for pid in self.pids() {
            self.place(pid, assigned.get(&pid).copied());
        }
    }

    /// Puts a process under a rule, and remembers from whom it has that.
    pub(super) fn place(&mut self, pid: i32, assignment: Option<matching::Assignment>) {
        let parent = self.parent_of(pid);
        let Some(process) = self.scanner.process_mut(pid) else {
            return;
        };
        process.assignment = assignment;
        match assignment {
            Some(assignment) if assignment.inherited => {
                let rule = &self.rules.rules[assignment.rule];
                let is_from_parent = parent.is_some_and(|(_, _, has_rule)| has_rule);
                let known = process.lineage.as_ref();
                if is_from_parent || known.is_none_or(|lineage| lineage.rule != *rule) {
                    let parent = parent.map_or((0, 0), |(pid, start, _)| (pid, start));
                    process.lineage = Some(Lineage {
                        rule: rule.clone(),
                        parent,
                    });
                }
            }
            // A class that is not granted now may be granted again.
            None if process.lineage.as_ref().is_some_and(|lineage| {
                let mut wishes = self.wishes.iter();
                wishes.any(|wish| rule_id(wish) == lineage.rule.id)
            }) => {}
            _ => process.lineage = None,
        }
    }

    /// (pid, start time, whether it hands a rule down) of a process's parent.
    fn parent_of(&self, pid: i32) -> Option<(i32, u64, bool)> {
        let ppid = self.scanner.process(pid)?.ppid;
        let parent = self.scanner.process(ppid)?;
        Some((
            ppid,
            parent.facts.start_time_ticks,
            ppid != INIT && parent.assignment.is_some(),
        ))
    }

    /// The rule a process had inherited from a parent that is gone by now.
    pub(super) fn remembered_rule(&self, process: &Process) -> Option<usize> {
        let lineage = process.lineage.as_ref()?;
        let (pid, start) = lineage.parent;
        let has_parent = process.ppid == pid
            && pid != INIT
            && self
                .scanner
                .process(pid)
                .is_some_and(|parent| parent.facts.start_time_ticks == start);
        if has_parent {
            return None;
        }
        self.rules
            .rules
            .iter()
            .position(|rule| rule.same_origin(&lineage.rule))
    }

    /// A process that appears with a tag, and inherits none that is known, was
    /// born with it. Its creator tells where it belongs, if it is still there; if
    /// a rule matches the process itself, only the tag's origin is left to know.
    pub(super) fn adopt_newborn(&mut self, pids: &[i32]) {
        let tags = self.tags();
        let in_use: HashMap<Tag, usize> = self
            .scanner
            .processes()
            .filter_map(|(_, process)| {
                let rule = process.assignment?.rule;
                Some((process.tagged.as_ref()?.tag, rule))
            })
            .collect();
        for &pid in pids {
            let Some(process) = self.scanner.process_mut(pid) else {
                continue;
            };
            let is_heir = process.assignment.is_some_and(|found| found.inherited);
            if !std::mem::take(&mut process.is_newborn) || is_heir || process.is_zombie {
                continue;
            }
            let Some(tag) = ioprio::get(pid).ok().and_then(Tag::of_ioprio) else {
                continue;
            };
            let is_matched = process.assignment.is_some();
            // init starts its services in sessions of their own, and such a process
            // has its priority from its unit, and not from a creator that ended. It
            // got it after the session, so it is asked for its session after it.
            let Ok(stat) = self.scanner.proc.stat(pid) else {
                continue;
            };
            if stat.ppid == INIT && stat.session != pid {
                if is_matched && tags.contains(&tag) {
                    self.remember_former(pid, tag);
                } else if let (false, Some(&rule)) = (is_matched, in_use.get(&tag)) {
                    self.adopt_stray(pid, tag, rule);
                }
            } else if is_matched {
                // Its parent lives and tells the rule.
            } else if let Some(base) = self.former_base(stat.ppid, tag) {
                self.adopt_late(pid, tag, base);
            }
        }
    }

    /// Its own priority is that of most: a creator that is gone cannot tell.
    fn remember_former(&mut self, pid: i32, tag: Tag) {
        if let Some(process) = self.scanner.process_mut(pid) {
            process.former = Some((tag, 0));
        }
    }

    /// The child of a matched process that came and went between two scans:
    /// it belongs where its tag says.
    fn adopt_stray(&mut self, pid: i32, tag: Tag, rule: usize) {
        let Some(process) = self.scanner.process_mut(pid) else {
            return;
        };
        process.assignment = Some(matching::Assignment {
            rule,
            inherited: true,
        });
        process.lineage = Some(Lineage {
            rule: self.rules.rules[rule].clone(),
            parent: (0, 0),
        });
        self.remember_former(pid, tag);
    }

    /// A child that a process got while its own tag was taken off.
    fn adopt_late(&mut self, pid: i32, tag: Tag, base_ioprio: u16) {
        if let Some(process) = self.scanner.process_mut(pid) {
            process.tagged = Some(TaggedProcess {
                tag,
                base_ioprio,
                threads: BTreeMap::new(),
            });
        }
    }

    /// The priority to which a process went back when this tag was taken off it.
    fn former_base(&self, pid: i32, tag: Tag) -> Option<u16> {
        let (former, base) = self.scanner.process(pid)?.former?;
        (former == tag).then_some(base)
    }

    pub(super) fn apply(&mut self, now_ns: u64, pid: i32, depth: Depth) {
        let Some(process) = self.scanner.process(pid) else {
            return;
        };
        match process
            .assignment
            .map(|assignment| self.rules.rules[assignment.rule].tag)
        {
            // Without its main thread the other threads go on.
            Some(tag) if !process.is_zombie || process.threads > 1 => {
                self.tag(now_ns, pid, tag, depth);
            }
            Some(_) => {}
            None if process.tagged.is_some() => self.untag(now_ns, pid),
            None => {}
        }
    }

    fn tag(&mut self, now_ns: u64, pid: i32, tag: Tag, depth: Depth) {
        let mut heritage = Heritage::of(self.scanner.ancestors(pid));
        let Scanner { proc, entries, .. } = &mut self.scanner;
        let Some(crate::services::scanner::Entry::Process(process)) = entries.get_mut(&pid) else {
            return;
        };
        // A child or thread of a tagged process is born tagged, so threads that
        // are settled are looked at again in full scans only. Sockets are not
        // born tagged: of processes that have some, they are looked at always.
        let is_full = depth != Depth::Quick;
        let is_new = process
            .tagged
            .as_ref()
            .is_none_or(|tagged| tagged.tag != tag);
        let wants_threads = is_full || is_new;
        let has_few_sockets = !process.held.is_empty() && process.descriptors <= MANY_DESCRIPTORS;
        // The kernel shows a process's descriptors by its main thread only.
        let wants_sockets = (wants_threads || has_few_sockets)
            && !process.is_zombie
            && (is_new || tagger::is_due(process, now_ns, self.descriptors_every_ns));
        if let Some((former, base)) = process.former {
            heritage.tags.push(former);
            heritage.base_ioprio = base;
        }
        let mut outcome = Ok(false);
        if wants_threads {
            outcome = tagger::tag_threads(proc, pid, process, tag, &heritage);
        }
        if wants_sockets {
            outcome = outcome.and_then(|threads_changed| {
                let began_ns = thread_cpu_ns();
                let sockets_changed = self.sockets.tag(proc, pid, process, tag, is_full);
                process.descriptors_seen_ns = now_ns;
                process.descriptors_took_ns = thread_cpu_ns().saturating_sub(began_ns);
                Ok(threads_changed || sockets_changed?)
            });
        }
        match outcome {
            Ok(has_changed) => self.is_dirty |= has_changed,
            Err(error) if tagger::is_gone(&error) => {}
            Err(error) => {
                self.is_dirty = true;
                let text = format!("cannot tag process {pid} ({}): {error}", process.comm);
                self.log.add(now_ns, Level::Warning, text);
            }
        }
    }

    fn untag(&mut self, now_ns: u64, pid: i32) {
        let Scanner { proc, entries, .. } = &mut self.scanner;
        let Some(crate::services::scanner::Entry::Process(process)) = entries.get_mut(&pid) else {
            return;
        };
        if process.tagged.is_none() {
            return;
        }
        self.is_dirty = true;
        tagger::untag_threads(proc, pid, process);
        match self.sockets.untag(proc, pid, process) {
            Err(error) if !tagger::is_gone(&error) => {
                let text = format!(
                    "cannot restore the sockets of process {pid} ({}): {error}",
                    process.comm
                );
                self.log.add(now_ns, Level::Warning, text);
            }
            _ => {}
        }
    }

    fn take_up(&mut self, now_ns: u64) -> io::Result<()> {
        let Some(path) = &self.state_path else {
            return Ok(());
        };
        let mut saved = match SavedState::load(path, &self.boot_id) {
            Ok(Some(saved)) => saved,
            Ok(None) => return Ok(()),
            Err(text) => {
                self.log.add(now_ns, Level::Warning, text);
                return Ok(());
            }
        };
        self.protocol = saved.protocol;
        if !saved.rules.is_null() {
            match RuleSet::from_params(&saved.rules, self.max_tag) {
                Ok(rules) => {
                    self.rules = rules;
                    self.follow_links();
                }
                Err(error) => self
                    .log
                    .add(now_ns, Level::Warning, format!("saved rules: {error}")),
            }
        }
        self.wishes = std::mem::take(&mut saved.wishes);
        self.add_wishes();
        let changes = self.scanner.scan(now_ns, Depth::Full)?;
        let is_clean = saved.is_clean;
        self.attach(saved);
        if !is_clean {
            self.know_tags_again();
        }
        let refused = match self.rules.refused.len() {
            0 => String::new(),
            count => format!(" and refused {count}"),
        };
        let text = format!(
            "took up {} rules of revision {}{refused}",
            self.rules.rules.len(),
            self.rules.revision
        );
        self.log.add(now_ns, Level::Info, text);
        self.is_unresolved = true;
        self.is_dirty = true;
        // On the scan above: another one would only make the classes wait.
        self.act(now_ns, Depth::Full, changes);
        self.save(now_ns, true);
        Ok(())
    }

    /// A predecessor that was killed had no time to write its last tags
    /// down: a tag of its rules on a process that it has not named is its own.
    fn know_tags_again(&mut self) {
        let tags = self.tags();
        for pid in self.pids() {
            let Some(process) = self.scanner.process_mut(pid) else {
                continue;
            };
            let tag = ioprio::get(pid).ok().and_then(Tag::of_ioprio);
            if let Some(tag) = tag.filter(|tag| process.tagged.is_none() && tags.contains(tag)) {
                process.former = Some((tag, 0));
            }
        }
    }

    /// Gives the processes that still live their records.
    fn attach(&mut self, saved: SavedState) {
        let mut living = BTreeSet::new();
        for SavedProcess {
            pid,
            start_time_ticks,
            tagged,
            lineage,
        } in saved.processes
        {
            let lineage = lineage.and_then(|lineage| self.restored(lineage));
            let Some(process) = self.scanner.process_mut(pid) else {
                continue;
            };
            if process.facts.start_time_ticks == start_time_ticks {
                process.tagged = Some(tagged);
                process.lineage = lineage;
                living.insert(pid);
            }
        }
        for heir in saved.heirs {
            if let Some(lineage) = self.restored(heir.lineage) {
                self.inherit(heir.pid, heir.start_time_ticks, lineage);
            }
        }
        for (inode, mut socket) in saved.sockets {
            socket.holders.retain(|pid| living.contains(pid));
            for &pid in &socket.holders {
                if let Some(process) = self.scanner.process_mut(pid) {
                    process.held.push(inode);
                }
            }
            if !socket.holders.is_empty() {
                self.sockets.sockets.insert(inode, socket);
            }
        }
    }

    /// Of a rule that is still there.
    fn restored(&self, (id, pid, start): SavedLineage) -> Option<Lineage> {
        let rule = self.rules.rules.iter().find(|rule| rule.id == id)?;
        Some(Lineage {
            rule: rule.clone(),
            parent: (pid, start),
        })
    }

    pub(super) fn save(&mut self, now_ns: u64, at_once: bool) {
        if !self.is_dirty || (!at_once && now_ns < self.next_save_ns) {
            return;
        }
        let began_ns = thread_cpu_ns();
        self.save_as(now_ns, End::Open);
        let rest_ns = rest_ns(thread_cpu_ns().saturating_sub(began_ns)).max(SAVE_EVERY_NS);
        self.next_save_ns = now_ns.saturating_add(rest_ns);
    }

    fn save_as(&mut self, now_ns: u64, end: End) {
        let Some(path) = &self.state_path else { return };
        let mut state = SavedState::new(&self.boot_id, self.rules.params.clone());
        state.protocol = self.protocol;
        state.is_clean = end == End::Clean;
        state.wishes.clone_from(&self.wishes);
        state.sockets = self
            .sockets
            .sockets
            .iter()
            .map(|(&inode, socket)| (inode, socket.clone()))
            .collect();
        for (pid, process) in self.scanner.processes() {
            let start_time_ticks = process.facts.start_time_ticks;
            let lineage = process.lineage.as_ref().map(saved_lineage);
            match (process.tagged.clone(), lineage) {
                (Some(tagged), lineage) => state.processes.push(SavedProcess {
                    pid,
                    start_time_ticks,
                    tagged,
                    lineage,
                }),
                (None, Some(lineage)) => state.heirs.push(SavedHeir {
                    pid,
                    start_time_ticks,
                    lineage,
                }),
                (None, None) => {}
            }
        }
        match state.save(path) {
            Ok(()) => {
                self.is_dirty = false;
            }
            Err(error) => {
                let text = format!(
                    "cannot write {} ({error}); a restarted agent could not undo tags",
                    path.display()
                );
                self.log.add(now_ns, Level::Error, text);
            }
        }
    }
}

/// A tag on init would reach every service, and a tag on this agent is of no use.
pub(super) fn is_exempt(pid: i32) -> bool {
    pid == INIT || pid == std::process::id() as i32
}

/// After work that took so much of a processor's time.
pub(super) fn rest_ns(took_ns: u64) -> u64 {
    took_ns.saturating_mul(PARTS).min(LONGEST_REST_NS)
}

fn saved_lineage(lineage: &Lineage) -> SavedLineage {
    let (pid, start) = lineage.parent;
    (lineage.rule.id.clone(), pid, start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reports_of_short_processes_are_no_looks_at_all_processes() {
        let rule = json!({"id": "a", "class": "video", "tag": 3, "match": {"exe": "/no/such"}});
        let class = json!({"name": "video", "tag": 3});
        let params =
            json!({"revision": 1, "interval_ms": 250, "classes": [class], "rules": [rule]});
        let mut agent = Agent::observer().unwrap();
        agent.rules = RuleSet::from_params(&params, Tag::MAX).unwrap();
        assert!(agent.has_work(), "{:?}", agent.rules.refused);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id() as i32;
        child.wait().unwrap();
        let error = agent.class_of_sender(0, (ended, 1000), None).unwrap_err();
        assert!(error.contains("had ended"), "{error}");
        let own = std::process::id() as i32;
        assert_eq!(agent.class_of_sender(0, (own, 1000), None), Ok(None));
        assert_eq!(agent.pids(), [own]);
    }
}
