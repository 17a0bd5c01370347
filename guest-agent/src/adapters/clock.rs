// SPDX-License-Identifier: GPL-2.0-or-later
//! The one place that reads clocks.

use nix::time::{ClockId, clock_gettime};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock {
            origin: Instant::now(),
        }
    }

    /// Monotonic, since the agent started.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// As programs of this guest see it: CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    ns_of(ClockId::CLOCK_MONOTONIC)
}

/// Of a processor, to this thread.
pub fn thread_cpu_ns() -> u64 {
    ns_of(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn ns_of(clock: ClockId) -> u64 {
    let Ok(time) = clock_gettime(clock) else {
        // Every kernel has these clocks.
        return 0;
    };
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Since the epoch.
pub fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        })
}
