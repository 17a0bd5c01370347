// SPDX-License-Identifier: GPL-2.0-or-later
//! Raises the CPU priority of a class's threads while it is limited, for a part of each period,
//! and takes it back. A file names the raised threads before they are, so that those of a killed
//! agent are known.

use crate::adapters::schedule::{self, ABOVE_RAISED, RAISED, Shared};
use crate::domain::raise::Raise;
use crate::services::agent::Agent;
use crate::services::log::Level;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Of a class; others are left as they are.
const MOST_THREADS: usize = 64;

/// Former values by thread.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Raised {
    threads: BTreeMap<i32, Shared>,
}

struct Class {
    raise: Raise,
    /// Since when it is limited.
    since_ns: Option<u64>,
    /// When the last period began of the time before.
    last_ns: Option<u64>,
    raised: BTreeMap<i32, Shared>,
    is_raised: bool,
}

pub struct Raiser {
    file: PathBuf,
    classes: Vec<Class>,
    /// The agent's own values, while it is above others.
    own: Option<Shared>,
}

impl Raiser {
    /// Takes back what a predecessor left. `file`: of raised threads.
    pub fn new(file: PathBuf, raises: &[Raise]) -> Raiser {
        take_back(&file);
        let class = |raise: &Raise| Class {
            raise: raise.clone(),
            since_ns: None,
            last_ns: None,
            raised: BTreeMap::new(),
            is_raised: false,
        };
        Raiser {
            file,
            classes: raises.iter().map(class).collect(),
            own: None,
        }
    }

    /// Names of classes whose limits matter.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|class| &class.raise.class[..])
    }

    pub fn next_ns(&self, now_ns: u64) -> u64 {
        let next = |class: &Class| {
            let since_ns = class.since_ns?;
            Some(class.raise.budget.at(since_ns, now_ns).1)
        };
        self.classes
            .iter()
            .filter_map(next)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// `is_limited`: of a class's name.
    pub fn tend(&mut self, now_ns: u64, agent: &mut Agent, is_limited: impl Fn(&str) -> bool) {
        for at in 0..self.classes.len() {
            let class = &mut self.classes[at];
            if !is_limited(&class.raise.class) {
                if let Some(since_ns) = class.since_ns.take() {
                    class.last_ns = Some(class.raise.budget.began(since_ns, now_ns));
                    self.lower(at);
                    let name = &self.classes[at].raise.class;
                    let text = format!("class {name} is no longer limited: no CPU priority");
                    agent.log.add(now_ns, Level::Info, text);
                }
                continue;
            }
            let budget = class.raise.budget;
            let begin_ns = budget.begin(class.last_ns, now_ns);
            let since_ns = *class.since_ns.get_or_insert(begin_ns);
            let (wants, _) = budget.at(since_ns, now_ns);
            if wants && !class.is_raised {
                class.is_raised = true;
                self.raise(now_ns, at, agent);
            } else if !wants && class.is_raised {
                self.lower(at);
            }
        }
    }

    /// Takes everything back.
    pub fn end(&mut self) {
        for at in 0..self.classes.len() {
            self.lower(at);
        }
    }

    fn raise(&mut self, now_ns: u64, at: usize, agent: &mut Agent) {
        let name = self.classes[at].raise.class.clone();
        let found = threads(agent, &name);
        let count = found.len();
        self.classes[at].raised = found.into_iter().take(MOST_THREADS).collect();
        let outcome = self.save().and_then(|()| self.rise());
        let tids = self.classes[at].raised.keys();
        // One that has ended needs none.
        let raise = |&tid: &i32| match schedule::raise(tid, RAISED) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        };
        let outcome = outcome.and_then(|()| tids.clone().try_for_each(raise));
        let text = match outcome {
            Ok(()) => format!(
                "class {name} is limited: {} of its {count} threads have CPU priority for a part \
                 of each period, as --raise says",
                self.classes[at].raised.len()
            ),
            Err(error) => {
                self.lower(at);
                self.classes[at].is_raised = true;
                format!(
                    "cannot raise the CPU priority of class {name} ({error}): the service needs \
                     RestrictRealtime=no and CAP_SYS_NICE, and the guest a kernel without \
                     real-time groups"
                )
            }
        };
        agent.log.add(now_ns, Level::Info, text);
    }

    /// The agent has to come in time to take the priority back.
    fn rise(&mut self) -> io::Result<()> {
        if self.own.is_none() {
            let own = schedule::shared(0)?;
            schedule::raise(0, ABOVE_RAISED)?;
            self.own = own;
        }
        Ok(())
    }

    fn lower(&mut self, at: usize) {
        let class = &mut self.classes[at];
        class.is_raised = false;
        restore_all(&std::mem::take(&mut class.raised));
        if self.classes.iter().any(|class| !class.raised.is_empty()) {
            return;
        }
        if let Some(own) = self.own.take() {
            let _ = schedule::restore(0, ABOVE_RAISED, own);
        }
        let _ = fs::remove_file(&self.file);
    }

    fn save(&self) -> io::Result<()> {
        let all = self.classes.iter().flat_map(|class| &class.raised);
        let raised = Raised {
            threads: all.map(|(tid, former)| (*tid, *former)).collect(),
        };
        let fresh = self.file.with_extension("new");
        fs::write(&fresh, serde_json::to_vec(&raised)?)?;
        fs::set_permissions(&fresh, Permissions::from_mode(0o644))?;
        fs::rename(fresh, &self.file)
    }
}

/// Of the processes of a class, those threads that share the time with others.
fn threads(agent: &Agent, class: &str) -> Vec<(i32, Shared)> {
    let processes = agent.scanner.processes();
    let is_of_class = |rule: usize| agent.rules.rules[rule].class == class;
    let pids = processes.filter_map(|(pid, process)| {
        let assignment = process.assignment.as_ref()?;
        is_of_class(assignment.rule).then_some(pid)
    });
    let tids = pids.flat_map(|pid| agent.scanner.proc.threads(pid).unwrap_or_default());
    tids.filter_map(|tid| Some((tid, schedule::shared(tid).ok()??)))
        .collect()
}

/// Restores the threads that a killed agent had raised, and forgets them.
pub fn take_back(file: &Path) {
    let Ok(bytes) = fs::read(file) else { return };
    if let Ok(raised) = serde_json::from_slice::<Raised>(&bytes) {
        restore_all(&raised.threads);
    }
    let _ = fs::remove_file(file);
}

/// Those that have ended need nothing.
fn restore_all(threads: &BTreeMap<i32, Shared>) {
    for (&tid, &former) in threads {
        let _ = schedule::restore(tid, RAISED, former);
    }
}
