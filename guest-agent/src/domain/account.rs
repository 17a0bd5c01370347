// SPDX-License-Identifier: GPL-2.0-or-later
//! A stream's numbers over all that its source plays. A source begins anew with each film; its
//! stream goes on.

use super::pace::RoundTrip;

/// A source's numbers at one look. All but the rate count since the source began.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    pub frames: u64,
    pub late: u64,
    pub lost: u64,
    pub bytes: u64,
    /// Desired frames per second, if the source knows.
    pub rate: Option<f64>,
    /// Now, of a source that knows its connections.
    pub round_trip: Option<RoundTrip>,
}

impl Counts {
    fn numbers(&self) -> [u64; 4] {
        [self.frames, self.late, self.lost, self.bytes]
    }
}

#[derive(Debug, Default)]
pub struct Account {
    last: [u64; 4],
    total: [u64; 4],
    /// When, and how many bytes in all, at the last look.
    paced: Option<(u64, u64)>,
}

impl Account {
    /// The numbers in all, and bytes per second since the last look: 0 if that is not known.
    pub fn add(&mut self, now_ns: u64, counts: &Counts) -> (Counts, u64) {
        let numbers = counts.numbers();
        let began_anew = numbers.iter().zip(&self.last).any(|(now, last)| now < last);
        if began_anew {
            self.last = [0; 4];
        }
        for (total, (now, last)) in self.total.iter_mut().zip(numbers.iter().zip(&self.last)) {
            *total = total.saturating_add(now - last);
        }
        self.last = numbers;
        let [frames, late, lost, bytes] = self.total;
        let pace = self.pace(now_ns, bytes);
        let total = Counts {
            frames,
            late,
            lost,
            bytes,
            rate: counts.rate,
            round_trip: counts.round_trip,
        };
        (total, pace)
    }

    fn pace(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let (then_ns, before) = self.paced.replace((now_ns, bytes)).unwrap_or_default();
        let span_ns = u128::from(now_ns.saturating_sub(then_ns));
        if then_ns == 0 || span_ns == 0 {
            return 0;
        }
        let grown = u128::from(bytes.saturating_sub(before));
        (grown * 1_000_000_000 / span_ns)
            .try_into()
            .unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn counts([frames, late, lost, bytes]: [u64; 4]) -> Counts {
        Counts {
            frames,
            late,
            lost,
            bytes,
            rate: None,
            round_trip: None,
        }
    }

    #[test]
    fn a_stream_goes_on_when_its_source_begins_anew() {
        let mut account = Account::default();
        let mut add = |now_ns, numbers| account.add(now_ns, &counts(numbers));
        assert_eq!(add(S, [100, 1, 2, 1000]), (counts([100, 1, 2, 1000]), 0));
        assert_eq!(
            add(3 * S, [150, 1, 3, 5000]),
            (counts([150, 1, 3, 5000]), 2000)
        );
        // The next film has lost more than the last one by now.
        let (total, pace) = add(4 * S, [20, 0, 9, 500]);
        assert_eq!((total, pace), (counts([170, 1, 12, 5500]), 500));
    }

    proptest! {
        #[test]
        fn totals_never_go_back(looks: Vec<(u64, [u64; 4])>) {
            let mut account = Account::default();
            let mut last = Counts::default();
            for (now_ns, numbers) in looks {
                let (total, _) = account.add(now_ns, &counts(numbers));
                for (now, before) in total.numbers().iter().zip(last.numbers()) {
                    prop_assert!(*now >= before);
                }
                last = total;
            }
        }
    }
}
