// SPDX-License-Identifier: GPL-2.0-or-later
//! The CPU priority of a class while events of it are pending: for how long of each period its
//! threads have it. After the service time and the period of DWCS, by which the ECalls server
//! schedules.

use std::str::FromStr;

const NS_PER_MS: u64 = 1_000_000;
const LEAST_PERIOD_NS: u64 = 20 * NS_PER_MS;
const LONGEST_PERIOD_NS: u64 = 10_000 * NS_PER_MS;
const LEAST_RUNTIME_NS: u64 = NS_PER_MS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub runtime_ns: u64,
    pub period_ns: u64,
}

/// As `video=200ms/1s`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raise {
    pub class: String,
    pub budget: Budget,
}

impl FromStr for Raise {
    type Err = String;

    fn from_str(text: &str) -> Result<Raise, String> {
        let parts = text.split_once('=');
        let parts = parts.and_then(|(class, budget)| Some((class, budget.split_once('/')?)));
        let Some((class, (runtime, period))) = parts.filter(|(class, _)| !class.is_empty()) else {
            return Err("say CLASS=RUNTIME/PERIOD, as video=200ms/1s".to_owned());
        };
        if class == "default" {
            return Err("processes of the class default are in no rule: name another class".into());
        }
        let budget = Budget {
            runtime_ns: time_ns(runtime)?,
            period_ns: time_ns(period)?,
        };
        let is_good = (LEAST_PERIOD_NS..=LONGEST_PERIOD_NS).contains(&budget.period_ns)
            && budget.runtime_ns >= LEAST_RUNTIME_NS
            // The kernel leaves other programs a twentieth, too.
            && budget.runtime_ns <= budget.period_ns / 10 * 9;
        if !is_good {
            return Err(format!(
                "{runtime}/{period}: the period is 20ms to 10s, and the runtime 1ms to nine \
                 tenths of it"
            ));
        }
        Ok(Raise {
            class: class.to_owned(),
            budget,
        })
    }
}

fn time_ns(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no time: say 40ms or 1s");
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let number: u64 = text[..unit].parse().map_err(|_| bad())?;
    let ns = match &text[unit..] {
        "ms" => number.checked_mul(NS_PER_MS),
        "s" => number.checked_mul(1000 * NS_PER_MS),
        _ => None,
    };
    ns.ok_or_else(bad)
}

impl Budget {
    /// When the first period begins of events that are pending from `now_ns` on: with them,
    /// or, if a period of earlier ones that began at `last_ns` is not over, then.
    pub fn begin(&self, last_ns: Option<u64>, now_ns: u64) -> u64 {
        let last_ns = last_ns.filter(|last_ns| now_ns.saturating_sub(*last_ns) < self.period_ns);
        last_ns.unwrap_or(now_ns)
    }

    /// When the period began that is at `now_ns`.
    pub fn began(&self, since_ns: u64, now_ns: u64) -> u64 {
        now_ns - now_ns.saturating_sub(since_ns) % self.period_ns
    }

    /// Whether threads have the priority now, and when that changes. Events are pending
    /// since `since_ns`; a period begins then.
    pub fn at(&self, since_ns: u64, now_ns: u64) -> (bool, u64) {
        let in_period_ns = now_ns.saturating_sub(since_ns) % self.period_ns;
        let began_ns = now_ns - in_period_ns;
        if in_period_ns < self.runtime_ns {
            (true, began_ns.saturating_add(self.runtime_ns))
        } else {
            (false, began_ns.saturating_add(self.period_ns))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_budget_is_a_part_of_a_period() {
        let raise: Raise = "video=200ms/1s".parse().unwrap();
        assert_eq!(raise.class, "video");
        assert_eq!(raise.budget.runtime_ns, 200_000_000);
        assert_eq!(raise.budget.period_ns, 1_000_000_000);
        for bad in [
            "video",
            "=1ms/40ms",
            "default=1ms/40ms",
            "video=1ms",
            "video=200/1s",
            "video=950ms/1s",
            "video=1ms/10ms",
            "video=0ms/1s",
            "video=1ms/11s",
            "video=1ms/99999999999999999999s",
            "video=1ms/18446744073709551615s",
            "video=-1ms/1s",
        ] {
            assert!(bad.parse::<Raise>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_class_that_is_limited_again_and_again_has_no_more(
            runtime_ms in 1_u64..900,
            turns_ms in prop::collection::vec((1_u64..500, 1_u64..500), 1..9),
        ) {
            let budget = Budget { runtime_ns: runtime_ms * NS_PER_MS, period_ns: 1000 * NS_PER_MS };
            let (mut now_ns, mut since_ns) = (NS_PER_MS, None);
            // Milliseconds in which it is raised.
            let mut raised = Vec::new();
            for (limited_ms, free_ms) in turns_ms {
                let began_ns = budget.begin(since_ns, now_ns);
                for _ in 0..limited_ms {
                    raised.push(budget.at(began_ns, now_ns).0);
                    now_ns += NS_PER_MS;
                }
                since_ns = Some(budget.began(began_ns, now_ns));
                raised.extend((0..free_ms).map(|_| false));
                now_ns += free_ms * NS_PER_MS;
            }
            let total = raised.iter().filter(|&&is_raised| is_raised).count() as u64;
            prop_assert!(total <= (raised.len() as u64 / 1000 + 1) * runtime_ms);
        }

        #[test]
        fn no_more_than_the_runtime_in_any_period(
            runtime_ms in 1_u64..900, since_ns in 0_u64..1 << 50, offset_ns in 0_u64..1 << 40,
        ) {
            let budget = Budget { runtime_ns: runtime_ms * NS_PER_MS, period_ns: 1000 * NS_PER_MS };
            // From any moment on, for one period.
            let (from_ns, mut now_ns) = (since_ns + offset_ns, since_ns + offset_ns);
            let mut raised_ns = 0;
            while now_ns < from_ns + budget.period_ns {
                let (is_raised, until_ns) = budget.at(since_ns, now_ns);
                prop_assert!(until_ns > now_ns);
                let until_ns = until_ns.min(from_ns + budget.period_ns);
                raised_ns += if is_raised { until_ns - now_ns } else { 0 };
                now_ns = until_ns;
            }
            prop_assert_eq!(raised_ns, budget.runtime_ns);
        }
    }
}
