// SPDX-License-Identifier: GPL-2.0-or-later
//! Least, middle and nearly greatest of many measured times.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub min_ns: u64,
    pub median_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
}

impl Spread {
    /// Nothing of no times.
    pub fn of(mut times_ns: Vec<u64>) -> Option<Spread> {
        times_ns.sort_unstable();
        let last = times_ns.len().checked_sub(1)?;
        Some(Spread {
            min_ns: times_ns[0],
            median_ns: times_ns[last / 2],
            p95_ns: times_ns[(last * 95).div_ceil(100)],
            p99_ns: times_ns[(last * 99).div_ceil(100)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_the_sorted_times() {
        let spread = Spread::of((1..=100).rev().collect()).unwrap();
        assert_eq!(
            (spread.min_ns, spread.median_ns, spread.p99_ns),
            (1, 50, 100)
        );
        let many = Spread::of((1..=1001).collect()).unwrap();
        assert_eq!((many.median_ns, many.p95_ns, many.p99_ns), (501, 951, 991));
        let one = Spread::of(vec![7]).unwrap();
        assert_eq!((one.min_ns, one.median_ns, one.p99_ns), (7, 7, 7));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
