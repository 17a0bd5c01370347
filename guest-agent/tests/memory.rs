// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory that hostile processes of the guest can make the agent allocate.

use sluice_agent::domain::table::{Head, Row, render};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static USED_BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: the system's allocator does the work, with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED_BYTES.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST_BYTES.fetch_max(used, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_table_of_long_command_lines_takes_a_few_times_its_limit() {
    const LIMIT_BYTES: usize = 1 << 20;
    // Each character is six in JSON: 98 MB of text in all.
    let cmdline = "\u{1}".repeat(4096);
    let rows: Vec<Row> = (1..=4000)
        .map(|pid| Row {
            pid,
            ppid: 1,
            start_time_ticks: 5,
            comm: "",
            exe: "",
            cmdline: &cmdline,
            user: "",
            unit: "",
            cgroup: "",
            class: None,
            rule: None,
            inherited: false,
            threads: 1,
            cpu_ratio: 0.0,
            rss_bytes: 0,
            read_bps: 0,
            write_bps: 0,
        })
        .collect();
    let head = Head {
        time_ns: 1,
        revision: 2,
        interval_ms: 1000,
    };
    let before = USED_BYTES.load(Ordering::Relaxed);
    MOST_BYTES.store(before, Ordering::Relaxed);
    let text = render(head, &rows, LIMIT_BYTES);
    let taken = MOST_BYTES.load(Ordering::Relaxed) - before;
    assert!(text.len() <= LIMIT_BYTES && text.len() > LIMIT_BYTES / 2);
    // The rows, the body and the whole, and vectors that double as they grow.
    assert!(taken < 6 * LIMIT_BYTES, "{taken} bytes");
}
