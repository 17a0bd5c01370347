// SPDX-License-Identifier: GPL-2.0-or-later
//! Events from the host: upcalls. The host writes each into a ring, and a bit into the pattern
//! of its priority. Here is how the guest reads both.

use super::channel_abi::{EVENTS, PRIORITIES, RESOURCES, TAGS, event};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// From 1 on.
    pub number: u64,
    /// Of the host's CLOCK_MONOTONIC.
    pub time_ns: u64,
    pub kind: u8,
    pub tag: u8,
    pub resource: u8,
    /// 0 first.
    pub priority: u8,
    pub datum: u64,
}

impl Event {
    /// A later host may have more kinds.
    pub fn is_known(&self) -> bool {
        (event::LIMITED..event::ECHO).contains(&self.kind)
            && usize::from(self.tag) < TAGS
            && usize::from(self.resource) < RESOURCES
    }
}

/// Where events are read from.
pub trait Source {
    /// The number of the newest event.
    fn head(&self) -> u64;
    /// The bits of a priority, which are 0 afterwards.
    fn take_pattern(&self, priority: usize) -> u64;
    /// Nothing if another event is there, or one that is being written.
    fn entry(&self, number: u64) -> Option<Event>;
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// By priority, and in the order of their numbers.
    pub events: Vec<Event>,
    /// Overwritten before they were read.
    pub lost: u64,
    /// Bit `tag * 4 + resource`: of these there were events. What was lost is of them.
    pub touched: u64,
}

/// How far the ring was read.
#[derive(Debug)]
pub struct Reader {
    last: u64,
}

impl Reader {
    /// Reads what comes from now on.
    pub fn new(source: &impl Source) -> Reader {
        // A pattern that is not 0 would keep the first event from raising the interrupt.
        for priority in 0..PRIORITIES {
            source.take_pattern(priority);
        }
        Reader {
            last: source.head(),
        }
    }

    /// Whether there is more to read. No exit.
    pub fn is_behind(&self, source: &impl Source) -> bool {
        source.head() != self.last
    }

    /// All that came since the last time: at most as many as the ring has places.
    pub fn read(&mut self, source: &impl Source) -> Batch {
        // An event that comes after this sets its bit anew, and interrupts.
        let touched = (0..PRIORITIES).fold(0, |bits, at| bits | source.take_pattern(at));
        let head = source.head();
        let mut batch = Batch {
            touched,
            ..Batch::default()
        };
        if head < self.last {
            // No host counts back.
            self.last = head;
            return batch;
        }
        let first = self.last.max(head.saturating_sub(EVENTS as u64));
        batch.lost = first - self.last;
        for number in first + 1..=head {
            match source.entry(number) {
                Some(event) if event.is_known() => batch.events.push(event),
                Some(_) => {}
                None => batch.lost += 1,
            }
        }
        self.last = head;
        batch.events.sort_by_key(|event| event.priority);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    /// The host's end.
    #[derive(Default)]
    struct Ring {
        head: u64,
        entries: Vec<Option<Event>>,
        patterns: RefCell<[u64; PRIORITIES]>,
    }

    impl Ring {
        fn new() -> Ring {
            Ring {
                entries: vec![None; EVENTS],
                ..Ring::default()
            }
        }

        fn make(&mut self, tag: u8, resource: u8, priority: u8) {
            self.head += 1;
            let slot = (self.head - 1) as usize % EVENTS;
            self.entries[slot] = Some(Event {
                number: self.head,
                time_ns: 0,
                kind: event::LIMITED,
                tag,
                resource,
                priority,
                datum: self.head,
            });
            let bit = 1 << (tag * 4 + resource);
            self.patterns.get_mut()[usize::from(priority)] |= bit;
        }
    }

    impl Source for Ring {
        fn head(&self) -> u64 {
            self.head
        }

        fn take_pattern(&self, priority: usize) -> u64 {
            std::mem::take(&mut self.patterns.borrow_mut()[priority])
        }

        fn entry(&self, number: u64) -> Option<Event> {
            self.entries[(number - 1) as usize % EVENTS].filter(|found| found.number == number)
        }
    }

    /// A host that may write anything.
    struct Garbage {
        heads: RefCell<Vec<u64>>,
        bytes: [u8; 4],
        has_entry: bool,
    }

    impl Source for Garbage {
        fn head(&self) -> u64 {
            self.heads.borrow_mut().pop().unwrap_or(u64::MAX)
        }

        fn take_pattern(&self, _: usize) -> u64 {
            u64::MAX
        }

        fn entry(&self, number: u64) -> Option<Event> {
            let [kind, tag, resource, priority] = self.bytes;
            self.has_entry.then_some(Event {
                number,
                time_ns: u64::MAX,
                kind,
                tag,
                resource,
                priority,
                datum: u64::MAX,
            })
        }
    }

    #[test]
    fn events_before_the_first_look_are_not_told() {
        let mut ring = Ring::new();
        ring.make(1, 1, 0);
        let mut reader = Reader::new(&ring);
        assert_eq!(ring.patterns.borrow()[0], 0, "the next one interrupts");
        assert_eq!(reader.read(&ring), Batch::default());
    }

    proptest! {
        #[test]
        fn each_event_is_told_once_or_counted_as_lost(
            bursts in prop::collection::vec(prop::collection::vec((0_u8..16, 0_u8..4, 0_u8..4), 0..400), 1..6)
        ) {
            let mut ring = Ring::new();
            let mut reader = Reader::new(&ring);
            let mut told = 0;
            for burst in bursts {
                for (tag, resource, priority) in &burst {
                    ring.make(*tag, *resource, *priority);
                }
                let batch = reader.read(&ring);
                prop_assert_eq!(batch.events.len() as u64 + batch.lost, burst.len() as u64);
                prop_assert_eq!(batch.lost, (burst.len() as u64).saturating_sub(EVENTS as u64));
                for (tag, resource, _) in &burst {
                    prop_assert!(batch.touched >> (tag * 4 + resource) & 1 == 1);
                }
                let order: Vec<(u8, u64)> =
                    batch.events.iter().map(|event| (event.priority, event.number)).collect();
                prop_assert!(order.is_sorted(), "{:?}", order);
                prop_assert!(batch.events.iter().all(|event| event.number > told));
                told = ring.head;
            }
        }

        #[test]
        fn no_host_makes_more_work_than_the_ring_has_places(
            heads in prop::collection::vec(any::<u64>(), 1..8),
            bytes in any::<[u8; 4]>(),
            has_entry in any::<bool>(),
        ) {
            let garbage = Garbage { heads: RefCell::new(heads.clone()), bytes, has_entry };
            let mut reader = Reader::new(&garbage);
            for _ in 0..heads.len() {
                let batch = reader.read(&garbage);
                prop_assert!(batch.events.len() <= EVENTS);
                prop_assert!(batch.events.iter().all(Event::is_known));
            }
        }
    }
}
