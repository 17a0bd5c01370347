// SPDX-License-Identifier: GPL-2.0-or-later
//! Events of the host to programs of this guest. A program sends a request and one end of a
//! socket; of its class it gets each event that it asked for. Any user may ask: there are so many
//! subscribers at most, a user sees the classes of his own processes alone, and a program that
//! does not read loses events and is told how many.

use crate::adapters::channel::Device;
use crate::adapters::interrupt::{Interrupt, LOOK_EVERY};
use crate::adapters::report::{Received, ReportSocket};
use crate::adapters::sockets::ForeignProcess;
use crate::adapters::subscriber::{Subscriber, Told, ready};
use crate::domain::channel_abi::{Call, RESOURCES, Status, TAGS, event, service};
use crate::domain::events::{Batch, Event, Reader};
use crate::domain::subscription::{Above, Filter, Message, Need, Request, needs};
use crate::domain::tag::Tag;
use crate::services::agent::Agent;
use crate::services::log::{Level, escaped};
use crate::services::raise::Raiser;
use serde_json::json;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

const MOST_SUBSCRIBERS: usize = 64;
/// Of these, for other users than root: all together, and each.
const MOST_OF_USERS: usize = 48;
const MOST_OF_A_USER: usize = 16;
const BATCH: usize = 32;
/// After a batch of requests, and between changes of the host's subscriptions, which are exits.
const REST_NS: u64 = 50_000_000;
/// While descriptors that a sender passed do not close.
const STUCK_NS: u64 = 1_000_000_000;
/// Between looks at the class entries, which the host writes as often.
const ENTRIES_NS: u64 = 250_000_000;
/// Between looks whether subscribers may still see what they see.
const RIGHTS_NS: u64 = 1_000_000_000;
/// Between tries to get an interrupt.
const INTERRUPT_NS: u64 = 10_000_000_000;
const SLOT: u32 = 0;

struct Member {
    end: Subscriber,
    process: ForeignProcess,
    pid: i32,
    uid: u32,
    request: Request,
    filter: Filter,
    tag: u8,
    above: Above,
    /// Not told yet.
    lost: u64,
    is_gone: bool,
}

/// A device from which events are read.
struct Source {
    generation: u64,
    reader: Reader,
    interrupt: Interrupt,
    /// As the device was told.
    interrupts: Option<bool>,
    /// As the host was told.
    in_force: [Option<Need>; TAGS],
}

pub struct Events {
    socket: Option<ReportSocket>,
    members: Vec<Member>,
    raiser: Raiser,
    /// Tags of its classes, and bit *r*: limited for resource *r*.
    limited: BTreeMap<u8, u8>,
    source: Option<Source>,
    rest_until_ns: u64,
    /// The host's subscriptions may have to be changed, then.
    update_ns: Option<u64>,
    updated_ns: u64,
    look_ns: u64,
    entries_ns: u64,
    rights_ns: u64,
    interrupt_ns: u64,
    /// Of the host's clock: the newest event that entries may not show yet.
    told_ns: u64,
    /// Of the host's clock: when the entries were written that were looked at.
    written_ns: u64,
    /// Why there is no interrupt, as was said.
    said: String,
}

impl Events {
    pub fn open(path: &Path, raiser: Raiser, now_ns: u64, agent: &mut Agent) -> Events {
        let socket = ReportSocket::bind(path)
            .inspect_err(|error| {
                let text = format!(
                    "cannot open {} ({error}): programs get no events",
                    path.display()
                );
                agent.log.add(now_ns, Level::Warning, text);
            })
            .ok();
        Events {
            socket,
            members: Vec::new(),
            raiser,
            limited: BTreeMap::new(),
            source: None,
            rest_until_ns: 0,
            update_ns: None,
            updated_ns: 0,
            look_ns: 0,
            entries_ns: 0,
            rights_ns: 0,
            interrupt_ns: 0,
            told_ns: 0,
            written_ns: 0,
            said: String::new(),
        }
    }

    /// To wait for.
    pub fn watched(&self, now_ns: u64) -> Vec<BorrowedFd<'_>> {
        let socket = self.socket.as_ref().map(AsFd::as_fd);
        let socket = socket.filter(|_| now_ns >= self.rest_until_ns);
        let interrupt = self.source.as_ref();
        let interrupt = interrupt.and_then(|source| source.interrupt.watched());
        let members = self.members.iter();
        let files = members.flat_map(|member| [member.end.as_fd(), member.process.as_fd()]);
        socket.into_iter().chain(interrupt).chain(files).collect()
    }

    pub fn next_ns(&self, now_ns: u64) -> u64 {
        let rest_ns = Some(self.rest_until_ns).filter(|until_ns| *until_ns > now_ns);
        let mut next_ns = self.update_ns.unwrap_or(u64::MAX);
        next_ns = next_ns.min(rest_ns.unwrap_or(u64::MAX));
        if !self.members.is_empty() || self.raiser.classes().next().is_some() {
            next_ns = next_ns.min(self.rights_ns);
        }
        // Without a device there are no entries to look at.
        if self.source.is_some() && !(self.members.is_empty() && self.limited.is_empty()) {
            next_ns = next_ns.min(self.entries_ns);
        }
        next_ns = next_ns.min(self.raiser.next_ns(now_ns));
        match &self.source {
            Some(source) if source.interrupt.why_not().is_some() => next_ns.min(self.look_ns),
            _ => next_ns,
        }
    }

    /// Takes requests, and tells what there is to tell.
    pub fn serve(&mut self, now_ns: u64, agent: &mut Agent) {
        self.take_requests(now_ns, agent);
        let raises = self.raiser.classes().next().is_some();
        let is_idle = self.members.is_empty() && self.source.is_none() && !raises;
        if is_idle && self.update_ns.is_none() {
            return;
        }
        self.drop_ended(now_ns, agent);
        if now_ns >= self.rights_ns {
            self.rights_ns = now_ns.saturating_add(RIGHTS_NS);
            self.check_rights(now_ns, agent);
        }
        self.follow_device(now_ns, agent);
        if self.update_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            self.update(now_ns, agent);
        }
        self.read(now_ns, agent);
        self.raise(now_ns, agent);
    }

    /// Ends all subscriptions, and takes CPU priority back.
    pub fn end(&mut self, agent: &Agent) {
        self.members.clear();
        self.raiser.end();
        if self.source.take().is_some() {
            if let Ok((device, _)) = agent.device() {
                device.set_events(false);
            }
        }
    }

    fn take_requests(&mut self, now_ns: u64, agent: &mut Agent) {
        if now_ns < self.rest_until_ns {
            return;
        }
        for _ in 0..BATCH {
            let Some(socket) = &self.socket else { return };
            if socket.is_stuck() {
                self.rest_until_ns = now_ns.saturating_add(STUCK_NS);
                return;
            }
            let mut received = match socket.receive() {
                Ok(Some(received)) => received,
                Ok(None) => return,
                Err(error) => {
                    let text = format!("cannot receive requests for events ({error})");
                    agent.log.add(now_ns, Level::Warning, text);
                    break;
                }
            };
            if let Err(error) = self.admit(now_ns, &mut received, agent) {
                received.answer(&json!({"error": escaped(&error)}).to_string());
            }
        }
        self.rest_until_ns = now_ns.saturating_add(REST_NS);
    }

    fn admit(
        &mut self,
        now_ns: u64,
        received: &mut Received,
        agent: &mut Agent,
    ) -> Result<(), String> {
        let (request, filter) = Request::parse(&received.bytes)?;
        let (pid, uid) = (received.pid, received.uid);
        self.has_room_for(uid)?;
        let process = ForeignProcess::open(pid)
            .map_err(|error| format!("process {pid} cannot be watched ({error})"))?;
        let tag = agent.class_for_events(now_ns, (pid, uid), request.class.as_deref())?;
        let (device, generation) = agent.device()?;
        let class = device.class_name(usize::from(tag));
        let end = received.take_subscriber().ok_or(
            "pass an end of a pair of sequenced-packet sockets (SOCK_SEQPACKET) along: events \
             are told there",
        )?;
        let end =
            Subscriber::new(end).map_err(|error| format!("cannot use that socket ({error})"))?;
        // What comes after the answer is told.
        self.begin_to_read(now_ns, device, generation);
        if end.tell(json!({ "class": class }).to_string().as_bytes()) != Told::Yes {
            return Ok(());
        }
        self.members.push(Member {
            end,
            process,
            pid,
            uid,
            request,
            filter,
            tag,
            above: Above::default(),
            lost: 0,
            is_gone: false,
        });
        self.update_soon(now_ns);
        Ok(())
    }

    fn has_room_for(&self, uid: u32) -> Result<(), String> {
        let count = |is_counted: &dyn Fn(u32) -> bool| {
            let members = self.members.iter();
            members.filter(|member| is_counted(member.uid)).count()
        };
        let all_are = |most: usize| format!("there are {most} subscribers already: end one");
        if self.members.len() >= MOST_SUBSCRIBERS {
            return Err(all_are(MOST_SUBSCRIBERS));
        }
        if uid != 0 && count(&|other| other != 0) >= MOST_OF_USERS {
            return Err(all_are(MOST_OF_USERS));
        }
        if uid != 0 && count(&|other| other == uid) >= MOST_OF_A_USER {
            return Err(format!(
                "user {uid} has {MOST_OF_A_USER} subscribers already: end one"
            ));
        }
        Ok(())
    }

    /// Subscribers that closed their socket or wrote to it, and processes that ended.
    fn drop_ended(&mut self, now_ns: u64, agent: &mut Agent) {
        let members = self.members.iter();
        let files: Vec<BorrowedFd> = members
            .flat_map(|member| [member.end.as_fd(), member.process.as_fd()])
            .collect();
        let ended = match ready(&files) {
            Ok(ended) => ended,
            Err(error) => {
                let text = format!("cannot look at subscribers ({error})");
                return agent.log.add(now_ns, Level::Warning, text);
            }
        };
        for (member, ended) in self.members.iter_mut().zip(ended.chunks(2)) {
            member.is_gone |= ended.contains(&true);
        }
        self.forget_gone(now_ns);
    }

    fn forget_gone(&mut self, now_ns: u64) {
        let before = self.members.len();
        self.members.retain(|member| !member.is_gone);
        if self.members.len() != before {
            self.update_soon(now_ns);
        }
    }

    fn raise(&mut self, now_ns: u64, agent: &mut Agent) {
        if self.source.is_none() {
            // Nobody would tell that a limit has ended.
            self.limited.values_mut().for_each(|bits| *bits = 0);
        }
        let tags = self.limited.iter().filter(|(_, bits)| **bits != 0);
        let names: Vec<String> = tags
            .filter_map(|(&tag, _)| agent.class_of_tag(tag))
            .collect();
        self.raiser.tend(now_ns, agent, |class| {
            names.iter().any(|name| name == class)
        });
    }

    /// The classes whose threads may be raised: rules may have changed.
    fn find_raised(&mut self, now_ns: u64, agent: &mut Agent) {
        let former = std::mem::take(&mut self.limited);
        for class in self.raiser.classes() {
            match agent.tag_of_class(class) {
                Ok(Some(tag)) => {
                    let bits = former.get(&tag.number()).copied().unwrap_or(0);
                    self.limited.insert(tag.number(), bits);
                }
                // Until the host has sent rules no class is known.
                Err(error) if agent.has_work() => {
                    let text = format!("--raise {class}: no CPU priority ({error})");
                    agent.log.add(now_ns, Level::Warning, text);
                }
                _ => {}
            }
        }
    }

    /// A process may be in another class by now.
    fn check_rights(&mut self, now_ns: u64, agent: &mut Agent) {
        self.find_raised(now_ns, agent);
        for member in &mut self.members {
            let sender = (member.pid, member.uid);
            match agent.class_for_events(now_ns, sender, member.request.class.as_deref()) {
                Ok(tag) if tag == member.tag => {}
                Ok(tag) => {
                    member.tag = tag;
                    member.above = Above::default();
                }
                Err(error) => {
                    let text = json!({"error": escaped(&error)}).to_string();
                    let _ = member.end.tell(text.as_bytes());
                    member.is_gone = true;
                }
            }
        }
        self.forget_gone(now_ns);
        self.update_soon(now_ns);
    }

    fn update_soon(&mut self, now_ns: u64) {
        let rested_ns = self.updated_ns.saturating_add(REST_NS);
        self.update_ns.get_or_insert(now_ns.max(rested_ns));
    }

    /// Another device, or a reset one, knows no subscription.
    fn follow_device(&mut self, now_ns: u64, agent: &mut Agent) {
        let known = self.source.as_ref().map(|source| source.generation);
        let present = agent.device().ok().map(|(_, generation)| generation);
        if known.is_some() && known != present {
            self.source = None;
            self.update_soon(now_ns);
        }
        let retries = self
            .source
            .as_mut()
            .filter(|source| source.interrupt.why_not().is_some() && now_ns >= self.interrupt_ns);
        if let (Some(source), Ok((device, _))) = (retries, agent.device()) {
            self.interrupt_ns = now_ns.saturating_add(INTERRUPT_NS);
            source.interrupt = Interrupt::open(device.folder());
            source.interrupt_if_taken(device);
        }
    }

    /// Brings the host's subscriptions into step with those here.
    fn update(&mut self, now_ns: u64, agent: &mut Agent) {
        self.update_ns = None;
        self.updated_ns = now_ns;
        let members = self.members.iter();
        let members = members.map(|member| (member.tag, member.filter));
        let raised = self.limited.keys().map(|&tag| (tag, LIMITS));
        let wanted = needs(members.chain(raised));
        let is_wanted = wanted.iter().flatten().next().is_some();
        let Ok((device, generation)) = agent.device() else {
            return;
        };
        if is_wanted {
            self.begin_to_read(now_ns, device, generation);
        }
        let Some(source) = &mut self.source else {
            return;
        };
        let refused = source.tell_host(device, &wanted);
        if !is_wanted {
            device.set_events(false);
            self.source = None;
        }
        self.say_why_not(now_ns, agent);
        if let Some(text) = refused {
            agent.log.add(now_ns, Level::Warning, text);
            // Such as a class that is not granted yet.
            self.update_ns = Some(now_ns.saturating_add(RIGHTS_NS));
        }
    }

    fn begin_to_read(&mut self, now_ns: u64, device: &Device, generation: u64) {
        if self.source.is_some() {
            return;
        }
        let mut source = Source {
            generation,
            reader: Reader::new(device),
            interrupt: Interrupt::open(device.folder()),
            interrupts: None,
            in_force: [None; TAGS],
        };
        source.interrupt_if_taken(device);
        self.source = Some(source);
        self.interrupt_ns = now_ns.saturating_add(INTERRUPT_NS);
        // It ends again if nobody has become a subscriber.
        self.update_soon(now_ns);
    }

    fn say_why_not(&mut self, now_ns: u64, agent: &mut Agent) {
        let source = self.source.as_ref();
        let why = source.and_then(|source| source.interrupt.why_not());
        if let Some(why) = why.filter(|why| *why != self.said) {
            let text = format!(
                "events are looked for every {} ms, without an interrupt: {why}",
                LOOK_EVERY.as_millis()
            );
            agent.log.add(now_ns, Level::Info, text);
            self.said = why.to_owned();
        }
    }

    fn read(&mut self, now_ns: u64, agent: &mut Agent) {
        let Some(source) = &mut self.source else {
            return;
        };
        let Ok((device, _)) = agent.device() else {
            return;
        };
        let was_interrupted = source.interrupt.take(device);
        let looks = now_ns >= self.look_ns;
        if looks {
            self.look_ns = now_ns.saturating_add(LOOK_EVERY.as_nanos() as u64);
        }
        let batch = if was_interrupted || source.reader.is_behind(device) {
            source.reader.read(device)
        } else {
            Batch::default()
        };
        if was_interrupted {
            source.interrupt.allow();
        }
        source.interrupt_if_taken(device);
        let has_new_grants = batch.events.iter().any(|event| event.kind == event::GRANTS);
        if has_new_grants || batch.lost > 0 {
            // A class that came again under its tag has no subscription.
            source.in_force = [None; TAGS];
            self.update_soon(now_ns);
        }
        let Ok((device, _)) = agent.device() else {
            return;
        };
        self.tell(device, &batch);
        if now_ns >= self.entries_ns {
            self.entries_ns = now_ns.saturating_add(ENTRIES_NS);
            // Entries older than an event would say that the backlog had fallen.
            let written_ns = device.header().heartbeat_ns;
            if written_ns < self.written_ns {
                // Of another host's clock, after a migration.
                self.told_ns = 0;
            }
            self.written_ns = written_ns;
            if written_ns >= self.told_ns {
                self.tell_deep_backlogs(device);
                self.look_for_limits(device);
            }
        }
        self.forget_gone(now_ns);
    }

    fn tell(&mut self, device: &Device, batch: &Batch) {
        for event in &batch.events {
            if let Some(bits) = self.limited.get_mut(&event.tag) {
                let bit = 1 << event.resource;
                match event.kind {
                    event::LIMITED => *bits |= bit,
                    event::UNLIMITED => *bits &= !bit,
                    _ => {}
                }
                self.told_ns = self.told_ns.max(event.time_ns);
            }
            let members = self.members.iter_mut();
            for member in members.filter(|member| member.tag == event.tag) {
                if event.kind == event::BACKLOG {
                    self.told_ns = self.told_ns.max(event.time_ns);
                    let resource = usize::from(event.resource);
                    let rises = member.above.rises(&member.filter, resource, event.datum);
                    if !rises {
                        continue;
                    }
                }
                member.tell(device, event);
            }
        }
        if batch.lost == 0 {
            return;
        }
        // Nobody knows whose they were: of these classes and resources.
        for member in &mut self.members {
            let bits = batch.touched >> (usize::from(member.tag) * RESOURCES) & 0xf;
            if bits == 0 {
                continue;
            }
            member.lost = member.lost.saturating_add(batch.lost);
            for resource in (0..RESOURCES).filter(|resource| bits >> resource & 1 == 1) {
                member.tell_present(device, resource);
            }
        }
    }

    /// Events may be lost.
    fn look_for_limits(&mut self, device: &Device) {
        for (&tag, bits) in &mut self.limited {
            for resource in 0..RESOURCES {
                if let Some(entry) = device.class_entry(usize::from(tag), resource) {
                    *bits = *bits & !(1 << resource) | u8::from(entry.is_limited) << resource;
                }
            }
        }
    }

    /// Of thresholds beyond the one that the host knows.
    fn tell_deep_backlogs(&mut self, device: &Device) {
        for member in &mut self.members {
            for resource in 0..RESOURCES {
                let tag = usize::from(member.tag);
                let Some(entry) = device.class_entry(tag, resource) else {
                    continue;
                };
                let rises = member
                    .above
                    .rises(&member.filter, resource, entry.backlog_bytes);
                if rises {
                    let made = member.made_here(device, event::BACKLOG, resource);
                    member.tell(
                        device,
                        &Event {
                            datum: entry.backlog_bytes,
                            ..made
                        },
                    );
                }
            }
        }
    }
}

impl Source {
    /// Events raise the interrupt only where it is taken: a line that nobody lowers would end
    /// the interrupts of each device that shares it.
    fn interrupt_if_taken(&mut self, device: &Device) {
        let is_taken = self.interrupt.why_not().is_none();
        if self.interrupts != Some(is_taken) {
            device.set_events(is_taken);
            self.interrupts = Some(is_taken);
        }
    }

    /// Why the host does not tell all that is wanted.
    fn tell_host(&mut self, device: &Device, wanted: &[Option<Need>; TAGS]) -> Option<String> {
        let mut refused = None;
        for (tag, wanted) in wanted.iter().enumerate() {
            if self.in_force[tag] == *wanted {
                continue;
            }
            let need = wanted.unwrap_or(Need {
                kinds: 0,
                backlog_bytes: 0,
            });
            let call = Call {
                service: service::EVENTS,
                operation: service::SUBSCRIBE,
                arguments: [
                    tag as u64,
                    need.kinds.into(),
                    PRIORITY,
                    need.backlog_bytes,
                    0,
                    0,
                ],
                ..Call::default()
            };
            match device.fast_call(SLOT, call) {
                Ok(outcome) if outcome.status == Status::Ok => self.in_force[tag] = *wanted,
                // It ended with its class.
                Ok(outcome) if wanted.is_none() && outcome.status == Status::Denied => {
                    self.in_force[tag] = None;
                }
                Ok(outcome) => {
                    refused = Some(format!(
                        "the host does not tell events of tag {tag}: {:?}",
                        outcome.status
                    ));
                }
                Err(error) => {
                    refused = Some(format!("the host does not tell events ({error})"));
                }
            }
        }
        refused
    }
}

/// Of all subscriptions; 0 is first.
const PRIORITY: u64 = 1;
/// What raises the CPU priority.
const LIMITS: Filter = Filter {
    kinds: 1 << event::LIMITED | 1 << event::UNLIMITED,
    resources: (1 << RESOURCES) - 1,
    backlog_bytes: u64::MAX,
};

impl Member {
    fn tell(&mut self, device: &Device, event: &Event) {
        if self.is_gone || !self.filter.takes(event) {
            return;
        }
        let message = Message {
            event: *event,
            lost: self.lost,
            class: device.class_name(usize::from(self.tag)),
        };
        match self.end.tell(&message.to_bytes()) {
            Told::Yes => self.lost = 0,
            Told::No => self.lost = self.lost.saturating_add(1),
            Told::Gone => self.is_gone = true,
        }
    }

    /// Whether the class is limited now, as its entry has it.
    fn tell_present(&mut self, device: &Device, resource: usize) {
        let Some(entry) = device.class_entry(usize::from(self.tag), resource) else {
            return;
        };
        let kind = if entry.is_limited {
            event::LIMITED
        } else {
            event::UNLIMITED
        };
        let event = self.made_here(device, kind, resource);
        self.tell(device, &event);
    }

    /// An event that the host has not numbered.
    fn made_here(&self, device: &Device, kind: u8, resource: usize) -> Event {
        Event {
            number: 0,
            time_ns: device.header().heartbeat_ns,
            kind,
            tag: self.tag,
            resource: resource as u8,
            priority: PRIORITY as u8,
            datum: 0,
        }
    }
}

impl Agent {
    /// The tag of the class whose events a process may see. 0: of the class default.
    fn class_for_events(
        &mut self,
        now_ns: u64,
        (pid, uid): (i32, u32),
        wanted: Option<&str>,
    ) -> Result<u8, String> {
        let number = |tag: Option<Tag>| tag.map_or(0, Tag::number);
        let asked = self.class_of_sender(now_ns, (pid, uid), wanted).map(number);
        match wanted {
            Some(name) if asked.is_err() && self.has_process_in(uid, name) => {
                self.class_of_sender(now_ns, (pid, 0), wanted).map(number)
            }
            _ => asked,
        }
    }

    fn class_of_tag(&self, tag: u8) -> Option<String> {
        let rules = self.rules.rules.iter();
        let mut rules = rules.filter(|rule| rule.tag.number() == tag);
        rules.next().map(|rule| rule.class.clone())
    }

    /// Whether a process of this user is in the class, by a rule.
    fn has_process_in(&self, uid: u32, class: &str) -> bool {
        self.scanner.processes().any(|(_, process)| {
            let rule = process
                .assignment
                .map(|found| &self.rules.rules[found.rule]);
            process.facts.uid == uid && rule.is_some_and(|rule| rule.class == class)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::rules::RuleSet;

    const NOW_NS: u64 = 5_000_000_000;

    /// In a guest without a device, with rules.
    fn without_a_device(name: &str, raises: &[&str]) -> (Events, Agent) {
        let rule = json!({"id": "a", "class": "video", "tag": 3, "match": {"exe": "/no/such"}});
        let class = json!({"name": "video", "tag": 3});
        let params =
            json!({"revision": 1, "interval_ms": 250, "classes": [class], "rules": [rule]});
        let mut agent = Agent::observer().unwrap();
        agent.rules = RuleSet::from_params(&params, Tag::MAX).unwrap();
        let path = std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()));
        let raises: Vec<_> = raises.iter().map(|raise| raise.parse().unwrap()).collect();
        let raiser = Raiser::new(path.with_extension("json"), &raises);
        (Events::open(&path, raiser, 0, &mut agent), agent)
    }

    #[test]
    fn without_a_device_nothing_is_due_at_once_for_ever() {
        let (mut events, mut agent) = without_a_device("raises", &["video=1ms/40ms"]);
        events.serve(NOW_NS, &mut agent);
        assert!(!events.limited.is_empty());
        assert!(events.next_ns(NOW_NS) > NOW_NS, "a class of --raise");
        let (mut events, mut agent) = without_a_device("left", &[]);
        // The last subscriber left while the device was away.
        events.update_ns = Some(NOW_NS);
        events.serve(NOW_NS, &mut agent);
        assert_eq!(events.next_ns(NOW_NS), u64::MAX);
    }
}
