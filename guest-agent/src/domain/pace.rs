// SPDX-License-Identifier: GPL-2.0-or-later
//! A stream as its process's TCP connections show it. A frame is 1 KiB.

use super::account::Counts;
use super::report::MOST_FRAMES_PER_SECOND;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

pub const FRAME_BYTES: u64 = 1024;
/// A report has no greater rate.
pub const MOST_DESIRED_BPS: u64 = MOST_FRAMES_PER_SECOND as u64 * FRAME_BYTES;

/// A connection's round trip, and the least of it lately, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTrip {
    pub smoothed_us: u32,
    pub least_us: u32,
}

impl RoundTrip {
    /// Nothing of a connection that has not measured any, or of a kernel that does not tell.
    pub fn new(smoothed_us: u32, least_us: u32) -> Option<RoundTrip> {
        let is_known = smoothed_us != 0 && !matches!(least_us, 0 | u32::MAX);
        is_known.then_some(RoundTrip {
            smoothed_us,
            least_us,
        })
    }

    /// In queues on the way.
    fn waits_us(&self) -> u32 {
        self.smoothed_us.saturating_sub(self.least_us)
    }
}

/// The kernel's numbers of a connection. Those of bytes and segments but `unsent_bytes` count since
/// it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpNumbers {
    /// Sent, and confirmed by the other end.
    pub acked_bytes: u64,
    pub received_bytes: u64,
    pub resent_segments: u64,
    /// Written by the program, and not sent yet.
    pub unsent_bytes: u64,
    pub round_trip: Option<RoundTrip>,
}

/// Adds up connections that come and go.
#[derive(Debug)]
pub struct Pace {
    desired_bps: u64,
    known: HashMap<u64, TcpNumbers>,
    bytes: u64,
    resent: u64,
    overdue_bytes: u64,
    late_bytes: u64,
}

impl Pace {
    /// `desired_bps`: bytes per second.
    pub fn new(desired_bps: u64) -> Pace {
        Pace {
            desired_bps,
            known: HashMap::new(),
            bytes: 0,
            resent: 0,
            overdue_bytes: 0,
            late_bytes: 0,
        }
    }

    /// The connections now, by the inodes of their sockets. Bytes count in the direction in which
    /// more went.
    pub fn add(&mut self, now: HashMap<u64, TcpNumbers>) -> Counts {
        let grown = |of: fn(&TcpNumbers) -> u64| {
            let each = now.iter().map(|(inode, numbers)| {
                let before = self.known.get(inode).map_or(0, of);
                of(numbers).saturating_sub(before)
            });
            each.fold(0, u64::saturating_add)
        };
        let sent = grown(|numbers| numbers.acked_bytes);
        let received = grown(|numbers| numbers.received_bytes);
        let resent = grown(|numbers| numbers.resent_segments);
        self.bytes = self.bytes.saturating_add(sent.max(received));
        self.resent = self.resent.saturating_add(resent);
        let unsent = now.values().map(|numbers| numbers.unsent_bytes);
        // A program may write half a second ahead.
        let overdue = unsent
            .fold(0, u64::saturating_add)
            .saturating_sub(self.desired_bps / 2);
        let more = overdue.saturating_sub(self.overdue_bytes);
        self.late_bytes = self.late_bytes.saturating_add(more);
        self.overdue_bytes = overdue;
        let round_trip = self.shared_round_trip(&now);
        self.known = now;
        Counts {
            round_trip,
            frames: self.bytes / FRAME_BYTES,
            late: self.resent.saturating_add(self.late_bytes / FRAME_BYTES),
            lost: 0,
            bytes: self.bytes,
            rate: Some(self.desired_bps as f64 / FRAME_BYTES as f64),
        }
    }

    /// Of the connections that had bytes confirmed since the last look, the one that waits least: a
    /// queue that all of them share delays each.
    fn shared_round_trip(&self, now: &HashMap<u64, TcpNumbers>) -> Option<RoundTrip> {
        let acked = |inode| self.known.get(inode).map_or(0, |known| known.acked_bytes);
        now.iter()
            .filter(|(inode, numbers)| numbers.acked_bytes > acked(inode))
            .filter_map(|(_, numbers)| numbers.round_trip)
            .min_by_key(|one| (one.waits_us(), one.smoothed_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers([acked, received, resent, unsent]: [u64; 4]) -> TcpNumbers {
        TcpNumbers {
            acked_bytes: acked,
            received_bytes: received,
            resent_segments: resent,
            unsent_bytes: unsent,
            round_trip: None,
        }
    }

    #[test]
    fn the_round_trip_is_that_of_the_connection_that_waits_least_and_moves() {
        let with = |acked_bytes, smoothed_us, least_us| TcpNumbers {
            acked_bytes,
            round_trip: RoundTrip::new(smoothed_us, least_us),
            ..TcpNumbers::default()
        };
        let mut pace = Pace::new(100_000);
        let look = HashMap::from([
            (1, with(10, 180_000, 20_000)),
            (2, with(10, 90_000, 80_000)),
        ]);
        let found = pace.add(look).round_trip.unwrap();
        assert_eq!((found.smoothed_us, found.least_us), (90_000, 80_000));
        // The second one rests: its numbers are old.
        let look = HashMap::from([
            (1, with(20, 180_000, 20_000)),
            (2, with(10, 90_000, 80_000)),
        ]);
        assert_eq!(pace.add(look).round_trip.unwrap().smoothed_us, 180_000);
        let look = HashMap::from([(1, with(20, 180_000, 20_000)), (3, with(1, 0, u32::MAX))]);
        assert_eq!(pace.add(look).round_trip, None);
    }

    fn add(pace: &mut Pace, now: &[(u64, [u64; 4])]) -> (u64, u64) {
        let now = now.iter().map(|(inode, of)| (*inode, numbers(*of)));
        let counts = pace.add(now.collect());
        (counts.frames, counts.late)
    }

    #[test]
    fn connections_come_and_go() {
        let mut pace = Pace::new(100_000);
        assert_eq!(add(&mut pace, &[(1, [0, 10_240, 0, 0])]), (10, 0));
        let both = [(1, [0, 11_264, 0, 0]), (2, [512, 1024, 0, 0])];
        assert_eq!(add(&mut pace, &both), (12, 0));
        assert_eq!(add(&mut pace, &[(2, [512, 2048, 0, 0])]), (13, 0));
        assert_eq!(add(&mut pace, &[]), (13, 0));
    }

    #[test]
    fn segments_that_are_sent_again_are_late() {
        let mut pace = Pace::new(100_000);
        assert_eq!(add(&mut pace, &[(1, [102_400, 0, 3, 50_000])]), (100, 3));
        assert_eq!(add(&mut pace, &[(1, [204_800, 0, 4, 50_000])]), (200, 4));
    }

    #[test]
    fn bytes_that_wait_for_more_than_half_a_second_are_late() {
        let mut pace = Pace::new(20_480);
        assert_eq!(add(&mut pace, &[(1, [0, 0, 0, 10_240])]), (0, 0));
        assert_eq!(add(&mut pace, &[(1, [0, 0, 0, 20_480])]), (0, 10));
        assert_eq!(
            add(&mut pace, &[(1, [0, 0, 0, 20_480])]),
            (0, 10),
            "the same"
        );
        assert_eq!(add(&mut pace, &[(1, [0, 0, 0, 0])]), (0, 10));
        assert_eq!(add(&mut pace, &[(1, [0, 0, 0, 12_288])]), (0, 12));
    }

    proptest! {
        #[test]
        fn counts_never_go_back(desired: u64, looks: Vec<Vec<(u8, [u64; 4])>>) {
            let mut pace = Pace::new(desired);
            let mut before = (0, 0);
            for look in looks {
                let look: Vec<_> = look.iter().map(|(inode, of)| (u64::from(*inode), *of)).collect();
                let now = add(&mut pace, &look);
                prop_assert!(now.0 >= before.0 && now.1 >= before.1);
                before = now;
            }
        }
    }
}
