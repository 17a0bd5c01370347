// SPDX-License-Identifier: GPL-2.0-or-later
//! The process table: rates from two readings, and the rows that fit a line.

use serde::Serialize;

/// Counters of one process at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    pub at_ns: u64,
    pub cpu_ticks: u64,
    pub io_at_ns: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// The I/O of one thread alone. Counters of another kind are no continuation of these.
    pub is_alone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    pub cpu_ratio: f64,
    pub read_bps: u64,
    pub write_bps: u64,
}

/// Rates between two readings. Counters that went back count as nothing, and
/// I/O that was not read anew keeps no rate of its own: the caller carries it.
pub fn rates(before: &Reading, now: &Reading, ticks_per_second: u64) -> Rates {
    let cpu_ns = now.at_ns.saturating_sub(before.at_ns);
    let io_ns = if before.is_alone == now.is_alone {
        now.io_at_ns.saturating_sub(before.io_at_ns)
    } else {
        0
    };
    let ticks = now.cpu_ticks.saturating_sub(before.cpu_ticks);
    Rates {
        cpu_ratio: if cpu_ns == 0 {
            0.0
        } else {
            let seconds = ticks as f64 / ticks_per_second as f64;
            (seconds * 1e9 / cpu_ns as f64 * 1e4).round() / 1e4
        },
        read_bps: per_second(before.read_bytes, now.read_bytes, io_ns),
        write_bps: per_second(before.write_bytes, now.write_bytes, io_ns),
    }
}

fn per_second(before: u64, now: u64, ns: u64) -> u64 {
    if ns == 0 {
        return 0;
    }
    let bytes = u128::from(now.saturating_sub(before));
    u64::try_from(bytes * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX)
}

#[derive(Debug, Clone, Serialize)]
pub struct Row<'a> {
    pub pid: i32,
    pub ppid: i32,
    pub start_time_ticks: u64,
    pub comm: &'a str,
    pub exe: &'a str,
    pub cmdline: &'a str,
    pub user: &'a str,
    pub unit: &'a str,
    pub cgroup: &'a str,
    pub class: Option<&'a str>,
    pub rule: Option<&'a str>,
    pub inherited: bool,
    pub threads: u64,
    pub cpu_ratio: f64,
    pub rss_bytes: u64,
    pub read_bps: u64,
    pub write_bps: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Head {
    pub time_ns: u64,
    pub revision: u64,
    pub interval_ms: u64,
}

/// The table as JSON text of at most `limit_bytes`. If all rows do not fit,
/// those with the least I/O, then the least CPU, are left out. They are not
/// even written: a command line may be full of characters to escape.
pub fn render(head: Head, rows: &[Row], limit_bytes: usize) -> String {
    let frame = |truncated: bool, body: &str| {
        format!(
            r#"{{"time_ns":{},"revision":{},"interval_ms":{},"truncated":{truncated},"processes":[{body}]}}"#,
            head.time_ns, head.revision, head.interval_ms
        )
    };
    // Each row brings a comma, except one.
    let mut room_bytes = limit_bytes
        .saturating_add(1)
        .saturating_sub(frame(false, "").len());
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| {
        activity(&rows[b])
            .partial_cmp(&activity(&rows[a]))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut written: Vec<(usize, String)> = Vec::new();
    for row in order {
        let text = serde_json::to_string(&rows[row]).unwrap_or_default();
        let Some(left_bytes) = room_bytes.checked_sub(text.len() + 1) else {
            break;
        };
        room_bytes = left_bytes;
        written.push((row, text));
    }
    let truncated = written.len() < rows.len();
    written.sort_unstable_by_key(|&(row, _)| row);
    let body: Vec<&str> = written.iter().map(|(_, text)| text.as_str()).collect();
    frame(truncated, &body.join(","))
}

fn activity(row: &Row) -> (u64, f64) {
    (row.read_bps.saturating_add(row.write_bps), row.cpu_ratio)
}

/// The systemd unit of a cgroup path: the first component that is a unit other
/// than a slice; below a user's manager, the user's own unit, if there is one.
pub fn unit_of(cgroup: &str) -> &str {
    const SUFFIXES: [&str; 6] = [".service", ".scope", ".socket", ".mount", ".swap", ".timer"];
    let mut units = cgroup
        .split('/')
        .filter(|part| SUFFIXES.iter().any(|suffix| part.ends_with(suffix)));
    match units.next() {
        Some(manager) if manager.starts_with("user@") => {
            units.find(|unit| *unit != "init.scope").unwrap_or(manager)
        }
        Some(unit) => unit,
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn reading(seconds: u64, ticks: u64, read: u64) -> Reading {
        Reading {
            at_ns: seconds * SECOND_NS,
            io_at_ns: seconds * SECOND_NS,
            cpu_ticks: ticks,
            read_bytes: read,
            write_bytes: 2 * read,
            is_alone: false,
        }
    }

    fn row(pid: i32, read_bps: u64, cpu_ratio: f64) -> Row<'static> {
        Row {
            pid,
            ppid: 1,
            start_time_ticks: 5,
            comm: "c\"\n",
            exe: "",
            cmdline: "",
            user: "root",
            unit: "",
            cgroup: "/",
            class: None,
            rule: None,
            inherited: false,
            threads: 1,
            cpu_ratio,
            rss_bytes: 0,
            read_bps,
            write_bps: 0,
        }
    }

    #[test]
    fn rates_are_per_second() {
        let got = rates(
            &reading(10, 100, 4096),
            &reading(12, 150, 4096 + 2_000_000),
            100,
        );
        assert_eq!(
            got,
            Rates {
                cpu_ratio: 0.25,
                read_bps: 1_000_000,
                write_bps: 2_000_000
            }
        );
    }

    #[test]
    fn no_time_or_backward_counters_give_zero() {
        assert_eq!(
            rates(&reading(1, 1, 1), &reading(1, 9, 9), 100),
            Rates::default()
        );
        assert_eq!(
            rates(&reading(1, 9, 9), &reading(2, 1, 1), 100),
            Rates::default()
        );
        let is_alone = Reading {
            is_alone: true,
            ..reading(2, 9, 9)
        };
        let changed = rates(&reading(1, 1, 1), &is_alone, 100);
        assert_eq!((changed.read_bps, changed.write_bps), (0, 0));
        let huge = rates(
            &reading(0, 0, 0),
            &Reading {
                read_bytes: u64::MAX,
                io_at_ns: 1,
                ..reading(0, 0, 0)
            },
            100,
        );
        assert_eq!(huge.read_bps, u64::MAX);
    }

    #[test]
    fn a_table_that_fits_is_whole() {
        let head = Head {
            time_ns: 1,
            revision: 2,
            interval_ms: 3,
        };
        let text = render(head, &[row(1, 0, 0.0), row(2, 0, 0.0)], 4096);
        let table: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(table["truncated"], false);
        assert_eq!(table["processes"].as_array().unwrap().len(), 2);
        assert_eq!(table["processes"][0]["class"], serde_json::Value::Null);
        assert_eq!(
            (&table["time_ns"], &table["revision"]),
            (&1.into(), &2.into())
        );
    }

    #[test]
    fn the_least_active_are_left_out_first() {
        let head = Head {
            time_ns: 1,
            revision: 2,
            interval_ms: 3,
        };
        let rows = [
            row(1, 0, 0.0),
            row(2, 9, 0.0),
            row(3, 0, 0.7),
            row(4, 3, 0.0),
        ];
        let three = render(head, &rows[..3], usize::MAX).len();
        for limit in [three, three + 5] {
            let text = render(head, &rows, limit);
            assert!(text.len() <= limit);
            let table: serde_json::Value = serde_json::from_str(&text).unwrap();
            let pids: Vec<i64> = table["processes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["pid"].as_i64().unwrap())
                .collect();
            assert_eq!(
                (table["truncated"].as_bool(), pids),
                (Some(true), vec![2, 3, 4])
            );
        }
    }

    #[test]
    fn units_are_found_in_cgroup_paths() {
        for (cgroup, unit) in [
            ("/system.slice/nginx.service", "nginx.service"),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                "getty@tty1.service",
            ),
            ("/system.slice/docker-1.scope/init.scope", "docker-1.scope"),
            (
                "/user.slice/user-0.slice/session-1.scope",
                "session-1.scope",
            ),
            (
                "/user.slice/user-0.slice/user@0.service/init.scope",
                "user@0.service",
            ),
            (
                "/user.slice/user-0.slice/user@0.service/app.slice/vlc.service",
                "vlc.service",
            ),
            ("/", ""),
            ("", ""),
        ] {
            assert_eq!(unit_of(cgroup), unit, "{cgroup}");
        }
    }
}
