// SPDX-License-Identifier: GPL-2.0-or-later
//! Messages for the journal and for the host. The same message is given once a
//! minute at most, and a host that does not read loses messages, not memory.

use std::collections::HashMap;

const REPEAT_AFTER_NS: u64 = 60_000_000_000;
const MOST_WAITING: usize = 64;
const MOST_REMEMBERED: usize = 256;

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
}

impl Log {
    pub fn add(&mut self, now_ns: u64, level: Level, text: String) {
        if self
            .last_ns
            .get(&text)
            .is_some_and(|last| now_ns.saturating_sub(*last) < REPEAT_AFTER_NS)
        {
            return;
        }
        if self.last_ns.len() >= MOST_REMEMBERED {
            self.last_ns.clear();
        }
        self.last_ns.insert(text.clone(), now_ns);
        eprintln!("{}: {text}", level.name());
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push((level, text));
        }
    }

    pub fn take(&mut self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.waiting)
    }
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
        for number in 0..1000 {
            log.add(0, Level::Warning, format!("message {number}"));
        }
        assert_eq!(log.take().len(), MOST_WAITING);
        assert!(log.last_ns.len() <= MOST_REMEMBERED);
    }
}
