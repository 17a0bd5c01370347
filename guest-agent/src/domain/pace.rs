// SPDX-License-Identifier: GPL-2.0-or-later
//! A stream as its process's TCP connections show it. A frame is 1 KiB.

use super::account::Counts;
use super::report::MOST_FRAMES_PER_SECOND;
use std::collections::HashMap;

pub const FRAME_BYTES: u64 = 1024;
/// A report has no greater rate.
pub const MOST_DESIRED_BPS: u64 = MOST_FRAMES_PER_SECOND as u64 * FRAME_BYTES;

/// The kernel's numbers of a connection. All but `unsent_bytes` count since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpNumbers {
    /// Sent, and confirmed by the other end.
    pub acked_bytes: u64,
    pub received_bytes: u64,
    pub resent_segments: u64,
    /// Written by the program, and not sent yet.
    pub unsent_bytes: u64,
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
        self.known = now;
        Counts {
            frames: self.bytes / FRAME_BYTES,
            late: self.resent.saturating_add(self.late_bytes / FRAME_BYTES),
            lost: 0,
            bytes: self.bytes,
            rate: Some(self.desired_bps as f64 / FRAME_BYTES as f64),
        }
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
        }
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
