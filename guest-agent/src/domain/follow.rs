// SPDX-License-Identifier: GPL-2.0-or-later
//! What the kernel tells of processes, made few enough to act upon.
//!
//! Events are taken in batches. Of a batch, each process is looked at once, and a process that
//! ended before its turn never: most of a storm of forks is of this kind. Batches have a share of
//! the time. What they take is a debt that melts as time goes by; while the debt is small the next
//! event is served at once, and beyond that the pause after a batch is in proportion to its length.

use std::collections::HashMap;

/// More processes than these are seen cheaper by a scan of all.
pub const MOST_LOOKS: usize = 256;
const SMALL_DEBT_NS: u64 = 20_000_000;
const LONGEST_REST_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEvent {
    Fork {
        parent: i32,
        child: i32,
    },
    /// It runs another program or is another user's.
    Changed(i32),
    /// Its main thread ended.
    Exit(i32),
}

/// A process to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub pid: i32,
    /// Its creator, if it was born in this batch; or, if that has ended in it, the creator's.
    pub origin: Option<i32>,
    /// Not only born: it has facts of its own by now.
    pub is_changed: bool,
}

/// The processes to look at, in the order in which they are first named: a creator that was
/// born in this batch comes before its children.
pub fn coalesce(events: impl IntoIterator<Item = ProcessEvent>) -> Vec<Look> {
    let mut looks: Vec<Option<Look>> = Vec::new();
    let mut places: HashMap<i32, usize> = HashMap::new();
    // Creators of processes that were born and ended.
    let mut passed: HashMap<i32, i32> = HashMap::new();
    for event in events {
        match event {
            ProcessEvent::Fork { parent, child } => {
                passed.remove(&child);
                places.insert(child, looks.len());
                looks.push(Some(Look {
                    pid: child,
                    origin: Some(parent),
                    is_changed: false,
                }));
            }
            ProcessEvent::Changed(pid) => {
                let known = places.get(&pid).and_then(|&place| looks[place].as_mut());
                if let Some(look) = known {
                    look.is_changed = true;
                    continue;
                }
                places.insert(pid, looks.len());
                looks.push(Some(Look {
                    pid,
                    origin: None,
                    is_changed: true,
                }));
            }
            ProcessEvent::Exit(pid) => {
                let ended = places.remove(&pid).and_then(|place| looks[place].take());
                if let Some(creator) = ended.and_then(|look| look.origin) {
                    passed.insert(pid, creator);
                }
            }
        }
    }
    let living = |mut creator: i32| {
        // A pid may have been used twice, so a loop is possible: this ends.
        for _ in 0..passed.len() {
            match passed.get(&creator) {
                Some(&before) => creator = before,
                None => break,
            }
        }
        creator
    };
    let mut looks: Vec<Look> = looks.into_iter().flatten().collect();
    for look in &mut looks {
        look.origin = look.origin.map(living);
    }
    looks
}

/// When the next batch may be taken, so that of the time at most one part in `parts` goes to
/// events, and a little more at once.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    parts: u64,
    /// At `ended_ns`, when the last batch was served.
    debt_ns: u64,
    ended_ns: u64,
}

impl Pace {
    pub fn new(parts: u64) -> Pace {
        Pace {
            parts,
            debt_ns: 0,
            ended_ns: 0,
        }
    }

    pub fn ready_ns(&self) -> u64 {
        let excess_ns = self.debt_ns.saturating_sub(SMALL_DEBT_NS);
        let rest_ns = excess_ns.saturating_mul(self.parts);
        self.ended_ns.saturating_add(rest_ns.min(LONGEST_REST_NS))
    }

    pub fn is_ready(&self, now_ns: u64) -> bool {
        now_ns >= self.ready_ns()
    }

    /// A batch was served.
    pub fn spent(&mut self, began_ns: u64, ended_ns: u64) {
        let melted_ns = began_ns.saturating_sub(self.ended_ns) / self.parts;
        let spent_ns = ended_ns.saturating_sub(began_ns);
        let debt_ns = self.debt_ns.saturating_sub(melted_ns);
        // A guest that was stopped for long has nothing to pay back.
        let most_ns = SMALL_DEBT_NS + LONGEST_REST_NS / self.parts;
        self.debt_ns = debt_ns.saturating_add(spent_ns).min(most_ns);
        self.ended_ns = ended_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessEvent::{Changed, Exit, Fork};
    use super::*;

    fn fork(parent: i32, child: i32) -> ProcessEvent {
        Fork { parent, child }
    }

    fn born(pid: i32, origin: i32, is_changed: bool) -> Look {
        Look {
            pid,
            origin: Some(origin),
            is_changed,
        }
    }

    fn changed(pid: i32) -> Look {
        Look {
            pid,
            origin: None,
            is_changed: true,
        }
    }

    #[test]
    fn a_process_is_looked_at_once() {
        let events = [
            fork(10, 11),
            Changed(11),
            Changed(11),
            Changed(20),
            Changed(20),
        ];
        assert_eq!(coalesce(events), [born(11, 10, true), changed(20)]);
    }

    #[test]
    fn a_process_that_ended_is_not_looked_at() {
        let events = [
            fork(10, 11),
            Changed(11),
            Exit(11),
            Changed(20),
            Exit(20),
            Exit(30),
        ];
        assert_eq!(coalesce(events), []);
    }

    #[test]
    fn an_orphan_has_the_nearest_creator_that_is_left() {
        let events = [fork(10, 11), fork(11, 12), fork(12, 13), Exit(12), Exit(11)];
        assert_eq!(coalesce(events), [born(13, 10, false)]);
    }

    #[test]
    fn a_pid_that_is_used_again_is_another_process() {
        let events = [
            fork(10, 11),
            fork(11, 12),
            Exit(11),
            fork(20, 11),
            Changed(11),
        ];
        assert_eq!(coalesce(events), [born(12, 11, false), born(11, 20, true)]);
        let events = [fork(11, 12), Exit(12), fork(12, 11), Exit(11), fork(12, 13)];
        assert_eq!(coalesce(events).len(), 1);
    }

    #[test]
    fn a_storm_leaves_what_lives() {
        let storm = (0..10_000).flat_map(|number| {
            let child = 1000 + number;
            [fork(10, child), Changed(child), Exit(child)]
        });
        let looks = coalesce(storm.chain([fork(10, 7)]));
        assert_eq!(looks, [born(7, 10, false)]);
    }

    const TEN_SECONDS_NS: u64 = 10_000_000_000;

    /// Time that events take of ten seconds in which they never stop.
    fn share_ns(parts: u64, batch_ns: u64) -> u64 {
        let mut pace = Pace::new(parts);
        let (mut now_ns, mut spent_ns) = (0, 0);
        while now_ns < TEN_SECONDS_NS {
            assert!(pace.is_ready(now_ns));
            pace.spent(now_ns, now_ns + batch_ns);
            spent_ns += batch_ns;
            now_ns = pace.ready_ns();
        }
        spent_ns
    }

    #[test]
    fn events_have_a_share_of_the_time_however_long_each_takes() {
        for batch_ns in [10_000, 300_000, 5_000_000, 19_000_000] {
            let share_ns = share_ns(50, batch_ns);
            let most_ns = TEN_SECONDS_NS / 50 + SMALL_DEBT_NS + 2 * batch_ns;
            assert!(share_ns <= most_ns, "{share_ns} > {most_ns}");
            assert!(share_ns > TEN_SECONDS_NS / 60, "{share_ns}");
        }
    }

    #[test]
    fn events_that_are_few_wait_for_nothing() {
        let mut pace = Pace::new(50);
        for number in 0..1000 {
            let now_ns = number * 60_000_000;
            assert!(pace.is_ready(now_ns), "{number}");
            pace.spent(now_ns, now_ns + 1_000_000);
        }
    }

    #[test]
    fn a_stopped_guest_is_followed_again_soon() {
        let mut pace = Pace::new(50);
        let stalled_ns = 600_000_000_000;
        pace.spent(0, stalled_ns);
        assert!(!pace.is_ready(stalled_ns));
        assert!(pace.is_ready(stalled_ns + LONGEST_REST_NS));
        pace.spent(0, u64::MAX);
        assert!(pace.is_ready(u64::MAX));
    }
}
