// SPDX-License-Identifier: GPL-2.0-or-later
//! Regular expressions of rules, and the memory that those of one set may take.

use super::rules::MAX_RULES;
use regex::{Regex, RegexBuilder};

/// Of one pattern, compiled; of all patterns of a set; and the least room of
/// every pattern, so that many small ones always fit: a rule has at most two.
const MAX_REGEX_BYTES: usize = 1 << 20;
const MAX_REGEXES_BYTES: usize = 16 << 20;
const SMALL_REGEX_BYTES: usize = MAX_REGEXES_BYTES / MAX_RULES / 2;

/// A regular expression, which is compiled when its set has room for it.
#[derive(Debug, Clone)]
pub struct Pattern {
    source: String,
    regex: Option<Regex>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.source == other.source
    }
}

impl Pattern {
    pub fn of_expression(source: String) -> Pattern {
        Pattern {
            source,
            regex: None,
        }
    }

    /// For a path or one below it, in which `*` stands for any part of a name, and `**` for any
    /// number of names.
    pub fn of_path(path: &str) -> Pattern {
        Pattern::of_expression(expression_of_path(path))
    }

    /// The error is the remedy.
    pub fn compile(&mut self, room: &mut PatternRoom) -> Result<(), String> {
        self.regex = Some(room.compile(&self.source)?);
        Ok(())
    }

    pub fn is_found(&self, text: &str) -> bool {
        self.regex
            .as_ref()
            .is_some_and(|regex| regex.is_match(text))
    }
}

fn expression_of_path(path: &str) -> String {
    let literal = |text: &str| regex::escape(text);
    let names = |text: &str| {
        let parts: Vec<String> = text.split('*').map(literal).collect();
        parts.join("[^/]*")
    };
    let runs: Vec<String> = path.trim_end_matches('/').split("**").map(names).collect();
    // Any number may be none: `/**/x` is `/x`, too.
    let expression = runs.join(".*").replace("/.*/", "/(?:.*/)?");
    format!("(?s)^{expression}(?:/.*)?$")
}

/// Memory left for the patterns of one set. How much a compiled pattern takes
/// is not told, only whether it is within a limit: the limit is doubled until
/// it is, and charged.
#[derive(Debug, Clone)]
pub struct PatternRoom {
    left_bytes: usize,
    /// Of each, for the states that it remembers as it searches.
    search_bytes: usize,
}

impl PatternRoom {
    pub fn of(rules: usize) -> PatternRoom {
        PatternRoom {
            left_bytes: MAX_REGEXES_BYTES,
            search_bytes: (MAX_REGEXES_BYTES / rules.max(1)).min(MAX_REGEX_BYTES),
        }
    }

    fn compile(&mut self, source: &str) -> Result<Regex, String> {
        self.compiled(source).map_err(|error| {
            // Of syntax, the last line says the fault, and those before it the place.
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or("bad syntax");
            let reason = reason.trim_start_matches("error: ").trim();
            match error {
                regex::Error::CompiledTooBig(_) => format!(
                    "give a shorter or simpler pattern, or fewer of them \
                     ({reason} Together they may have {MAX_REGEXES_BYTES}.)"
                ),
                _ => format!("give a regular expression ({reason})"),
            }
        })
    }

    fn compiled(&mut self, source: &str) -> Result<Regex, regex::Error> {
        let most_bytes = self.left_bytes.min(MAX_REGEX_BYTES);
        let mut limit_bytes = SMALL_REGEX_BYTES.min(most_bytes);
        loop {
            let outcome = RegexBuilder::new(source)
                .size_limit(limit_bytes)
                .dfa_size_limit(self.search_bytes)
                .build();
            match outcome {
                Err(regex::Error::CompiledTooBig(_)) if limit_bytes < most_bytes => {
                    limit_bytes = (limit_bytes * 2).min(most_bytes);
                }
                Ok(regex) => {
                    self.left_bytes -= limit_bytes;
                    return Ok(regex);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
