// SPDX-License-Identifier: GPL-2.0-or-later
//! Messages for the journal and for the host. A message is repeated once a
//! minute at most, all together no more than thirty, and a host that does not
//! read loses messages, not memory. Processes choose their names, so characters
//! that could pass for a line or a command of a terminal are escaped.

use std::collections::HashMap;
use std::io::Write;

const REPEAT_AFTER_NS: u64 = 60_000_000_000;
const MOST_A_MINUTE: usize = 30;
const MOST_WAITING: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Info,
    Warning,
    Error,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

#[derive(Default)]
pub struct Log {
    waiting: Vec<(Level, String)>,
    last_ns: HashMap<String, u64>,
    /// When the minute began in which so many were given and left out.
    since_ns: u64,
    given: usize,
    left_out: usize,
}

impl Log {
    pub fn add(&mut self, now_ns: u64, level: Level, text: String) {
        if now_ns.saturating_sub(self.since_ns) >= REPEAT_AFTER_NS {
            self.begin_minute(now_ns);
        }
        let is_repeated = self
            .last_ns
            .get(&text)
            .is_some_and(|last| now_ns.saturating_sub(*last) < REPEAT_AFTER_NS);
        if is_repeated {
            return;
        }
        if self.given >= MOST_A_MINUTE {
            self.left_out += 1;
            return;
        }
        self.last_ns.insert(text.clone(), now_ns);
        self.given += 1;
        self.give(level, &text);
    }

    fn begin_minute(&mut self, now_ns: u64) {
        self.last_ns
            .retain(|_, last| now_ns.saturating_sub(*last) < REPEAT_AFTER_NS);
        (self.since_ns, self.given) = (now_ns, 0);
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            let text = format!("left out {left_out} messages beyond {MOST_A_MINUTE} a minute");
            self.give(Level::Warning, &text);
        }
    }

    fn give(&mut self, level: Level, text: &str) {
        let text = escaped(text);
        // Not eprintln!, which panics when the journal is gone.
        let _ = writeln!(std::io::stderr(), "{}: {text}", level.name());
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push((level, text));
        }
    }

    pub fn take(&mut self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.waiting)
    }
}

/// Without control characters.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_given_once_a_minute() {
        let mut log = Log::default();
        for now_ns in [0, 1, REPEAT_AFTER_NS - 1, REPEAT_AFTER_NS] {
            log.add(now_ns, Level::Info, "same".into());
        }
        assert_eq!(log.take().len(), 2);
        assert!(log.take().is_empty());
    }

    #[test]
    fn unread_messages_are_bounded() {
        let mut log = Log::default();
        for number in 0..100 {
            let now_ns = number * REPEAT_AFTER_NS / 10;
            log.add(now_ns, Level::Warning, format!("message {number}"));
        }
        assert_eq!(log.take().len(), MOST_WAITING);
        assert!(log.last_ns.len() <= 2 * MOST_A_MINUTE);
    }

    #[test]
    fn many_messages_are_left_out_and_counted() {
        let mut log = Log::default();
        for number in 0..1000 {
            log.add(0, Level::Warning, format!("process {number}"));
        }
        assert_eq!(log.take().len(), MOST_A_MINUTE);
        log.add(REPEAT_AFTER_NS, Level::Info, "later".into());
        let texts: Vec<String> = log.take().into_iter().map(|(_, text)| text).collect();
        let summary = "left out 970 messages beyond 30 a minute";
        assert_eq!(texts, [summary, "later"]);
    }

    #[test]
    fn a_name_can_neither_begin_a_line_nor_command_a_terminal() {
        let mut log = Log::default();
        log.add(0, Level::Info, "(x\nerror: y\x1b[2J é)".into());
        assert_eq!(log.take()[0].1, "(x\\nerror: y\\u{1b}[2J é)");
    }
}
