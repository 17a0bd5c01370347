// SPDX-License-Identifier: GPL-2.0-or-later
//! Puts processes into granted classes as root of this guest asks. A wish is a rule after all
//! rules of the host. It ends with its process and the last heir of that.

use crate::domain::rules::Rule;
use crate::domain::shape::{MOST_WISHES, Request, Wish};
use crate::services::agent::{Agent, is_exempt};
use crate::services::scanner::Depth;
use serde_json::{Value, json};
use std::collections::HashSet;

impl Agent {
    /// The answer to a request; the error is for the sender.
    pub fn shape(
        &mut self,
        now_ns: u64,
        (sender, uid): (i32, u32),
        request: Request,
    ) -> Result<Value, String> {
        if uid != 0 {
            return Err(format!(
                "user {uid} may not choose classes: run it as root, or ask the host's operator \
                 for a rule"
            ));
        }
        match request {
            Request::Put { pid, class } => self.put(now_ns, pid.unwrap_or(sender), class),
            Request::Release { pid } => self.release(now_ns, pid),
            Request::List => {
                // A process that has ended since the last scan is not to be told as in force.
                self.look(now_ns, Depth::Full);
                Ok(json!({ "shaped": self.shaped() }))
            }
        }
    }

    /// They may be rules, too, as soon as the host has said what it grants.
    pub fn has_wishes(&self) -> bool {
        !self.wishes.is_empty()
    }

    fn put(&mut self, now_ns: u64, pid: i32, class: String) -> Result<Value, String> {
        if self.tag_of_class(&class)?.is_none() {
            return Err(format!(
                "class: {class:?} is the class of processes without another: use --release"
            ));
        }
        if pid < 1 || is_exempt(pid) {
            return Err(format!(
                "process {pid} stays without a class: name a process other than 1 and the agent"
            ));
        }
        let start = self.scanner.proc.start_time(pid);
        let start_time_ticks = start.map_err(|error| format!("process {pid}: {error}"))?;
        let is_same = |wish: &&Wish| (wish.pid, wish.start_time_ticks) == (pid, start_time_ticks);
        let before = self.wishes.iter().find(is_same).cloned();
        if before.is_none() && self.wishes.len() >= MOST_WISHES {
            return Err(format!(
                "{MOST_WISHES} processes are shaped already: release one"
            ));
        }
        let wish = Wish {
            pid,
            start_time_ticks,
            class,
        };
        let rule = rule_id(&wish);
        self.change_wishes(now_ns, &rule, Some(wish));
        let found = self.scanner.process(pid).map(|process| process.assignment);
        let refusal = match found {
            None => format!("{pid} is a thread and no process, or has ended"),
            Some(None) => format!("process {pid} could not be looked at"),
            Some(Some(found)) => {
                let holds = &self.rules.rules[found.rule];
                if holds.id == rule {
                    return Ok(json!({"pid": pid, "class": holds.class}));
                }
                format!(
                    "rule {} of the host puts process {pid} into class {:?}, and goes first",
                    holds.id, holds.class
                )
            }
        };
        self.change_wishes(now_ns, &rule, before);
        Err(refusal)
    }

    fn release(&mut self, now_ns: u64, pid: i32) -> Result<Value, String> {
        // The newest, where a pid was given out again.
        let Some(wish) = self.wishes.iter().rfind(|wish| wish.pid == pid) else {
            return Err(format!("process {pid} is not shaped: see --list"));
        };
        let rule = rule_id(wish);
        self.change_wishes(now_ns, &rule, None);
        Ok(json!({ "pid": pid }))
    }

    fn shaped(&self) -> Vec<Value> {
        let row = |wish: &Wish| {
            let process = self.scanner.process(wish.pid);
            let process =
                process.filter(|found| found.facts.start_time_ticks == wish.start_time_ticks);
            let assignment = process.and_then(|process| process.assignment);
            let holds = assignment.map(|found| self.rules.rules[found.rule].id.as_str());
            let id = rule_id(wish);
            let state = match holds {
                Some(rule) if rule == id => "in force".to_owned(),
                Some(rule) => format!("rule {rule} of the host goes first"),
                None if process.is_none() && self.is_granted(wish) => {
                    "ended; its children go on".to_owned()
                }
                None => "the host does not grant the class".to_owned(),
            };
            json!({"pid": wish.pid, "class": wish.class, "state": state})
        };
        self.wishes.iter().map(row).collect()
    }

    fn is_granted(&self, wish: &Wish) -> bool {
        self.tag_of_class(&wish.class).is_ok()
    }

    /// Replaces the wish of this rule and acts at once.
    fn change_wishes(&mut self, now_ns: u64, rule: &str, wish: Option<Wish>) {
        self.settle(now_ns);
        self.wishes.retain(|other| rule_id(other) != rule);
        self.wishes.extend(wish);
        self.renew_wishes();
        self.is_dirty = true;
        self.look(now_ns, Depth::Full);
        self.save(now_ns, true);
    }

    /// Assignments are stale until the next `resolve`.
    fn renew_wishes(&mut self) {
        self.rules.rules.retain(|rule| !rule.is_wish);
        self.add_wishes();
        self.match_anew();
    }

    /// To rules that have none. A class that is not granted now may be granted again.
    pub(super) fn add_wishes(&mut self) {
        let tagged = self.wishes.iter().filter_map(|wish| {
            let tag = self.tag_of_class(&wish.class).ok()??;
            let Wish {
                pid,
                start_time_ticks,
                ref class,
            } = *wish;
            Some(Rule::of_wish(pid, start_time_ticks, class, tag))
        });
        let rules: Vec<Rule> = tagged.collect();
        self.rules.rules.extend(rules);
    }

    /// Forgets wishes of which neither the process nor an heir is left; whether there were
    /// any, so that all must be resolved again.
    pub(super) fn end_wishes(&mut self) -> bool {
        if self.wishes.is_empty() {
            return false;
        }
        let held = self.scanner.processes().flat_map(|(_, process)| {
            let assigned = process
                .assignment
                .map(|found| &self.rules.rules[found.rule]);
            let lineage = process.lineage.as_ref().map(|lineage| &lineage.rule);
            [assigned, lineage]
        });
        let held = held.flatten().map(|rule| rule.id.as_str());
        let held: HashSet<&str> = held.collect();
        let lives = |wish: &Wish| {
            let process = self.scanner.process(wish.pid);
            process.is_some_and(|found| found.facts.start_time_ticks == wish.start_time_ticks)
        };
        let is_left = |wish: &&Wish| lives(wish) || held.contains(rule_id(wish).as_str());
        let left: Vec<Wish> = self.wishes.iter().filter(is_left).cloned().collect();
        let has_ended = left.len() < self.wishes.len();
        if has_ended {
            self.wishes = left;
            self.is_dirty = true;
            self.renew_wishes();
        }
        has_ended
    }
}

pub(super) fn rule_id(wish: &Wish) -> String {
    format!("shape-{}-{}", wish.pid, wish.start_time_ticks)
}
