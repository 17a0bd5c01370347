// SPDX-License-Identifier: GPL-2.0-or-later
//! Rules: which processes belong to which class. Checked whole when they
//! arrive; what is accepted cannot fail later.

use super::rpc::ParamError;
use super::tag::Tag;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};
use std::collections::HashSet;

pub const DEFAULT_INTERVAL_MS: u64 = 1000;
const INTERVALS_MS: std::ops::RangeInclusive<u64> = 100..=10_000;
const MAX_RULES: usize = 1024;
const MAX_NAME_CHARS: usize = 128;
const MAX_TEXT_BYTES: usize = 4096;
/// Of one pattern, compiled; of all patterns of a set; and what every pattern
/// may have, so that many small ones always fit.
const MAX_REGEX_BYTES: usize = 1 << 20;
const MAX_REGEXES_BYTES: usize = 16 << 20;
const SMALL_REGEX_BYTES: usize = MAX_REGEXES_BYTES / MAX_RULES;
const PID_MAX: u64 = 1 << 22;
const INIT: u64 = 1;
const MATCH_KEYS: &str = "exe, cmdline, user, unit, cgroup, pid with start_time_ticks";

/// The facts about a process that rules look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub pid: i32,
    pub start_time_ticks: u64,
    pub exe: String,
    pub cmdline: String,
    pub uid: u32,
    pub user: String,
    pub cgroup: String,
}

#[derive(Debug, Clone)]
pub struct CmdlinePattern(Regex);

impl PartialEq for CmdlinePattern {
    fn eq(&self, other: &CmdlinePattern) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// Conditions that must all hold; at least one is present.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Match {
    pub exe: Option<String>,
    pub cmdline: Option<CmdlinePattern>,
    pub user: Option<String>,
    pub unit: Option<String>,
    pub cgroup: Option<String>,
    /// Process id and start time, so that a reused pid never matches.
    pub process: Option<(i32, u64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub id: String,
    pub class: String,
    pub tag: Tag,
    pub condition: Match,
}

#[derive(Debug, Clone)]
pub struct RuleSet {
    pub revision: u64,
    pub interval_ms: u64,
    pub rules: Vec<Rule>,
    /// As received, so that a restarted agent can take them up again.
    pub params: Value,
}

impl Match {
    pub fn holds(&self, facts: &Facts) -> bool {
        let is = |wanted: &Option<String>, value: &str| {
            wanted.as_deref().is_none_or(|text| text == value)
        };
        self.process
            .is_none_or(|process| process == (facts.pid, facts.start_time_ticks))
            && is(&self.exe, &facts.exe)
            && self
                .user
                .as_deref()
                .is_none_or(|user| user == facts.user || user == facts.uid.to_string())
            && self
                .unit
                .as_deref()
                .is_none_or(|unit| facts.cgroup.split('/').any(|part| part == unit))
            && self
                .cgroup
                .as_deref()
                .is_none_or(|prefix| is_path_prefix(prefix, &facts.cgroup))
            && self
                .cmdline
                .as_ref()
                .is_none_or(|pattern| pattern.0.is_match(&facts.cmdline))
    }
}

impl Rule {
    /// The same rule as before, whatever its class is now: what was inherited
    /// from it stays inherited.
    pub fn same_origin(&self, other: &Rule) -> bool {
        self.id == other.id && self.condition == other.condition
    }
}

impl RuleSet {
    pub fn none() -> RuleSet {
        RuleSet {
            revision: 0,
            interval_ms: DEFAULT_INTERVAL_MS,
            rules: Vec::new(),
            params: Value::Null,
        }
    }

    pub fn from_params(params: &Value, max_tag: u8) -> Result<RuleSet, ParamError> {
        let members = object("params", params)?;
        let revision = integer("revision", get(members, "revision"), 0..=i64::MAX as u64)?;
        let interval_ms = match members.get("interval_ms") {
            None => DEFAULT_INTERVAL_MS,
            Some(value) => integer("interval_ms", value, INTERVALS_MS)?,
        };
        let classes = parse_classes(get(members, "classes"), max_tag)?;
        let list = array("rules", get(members, "rules"), MAX_RULES)?;
        let mut rules = Vec::with_capacity(list.len());
        let mut ids = HashSet::new();
        let mut room = PatternRoom::of(list.len());
        for (index, value) in list.iter().enumerate() {
            let rule = parse_rule(&format!("rules[{index}]"), value, &classes, &mut room)?;
            if !ids.insert(rule.id.clone()) {
                let field = format!("rules[{index}].id");
                return Err(ParamError::new(
                    field,
                    &value["id"],
                    "give every rule an id of its own",
                ));
            }
            rules.push(rule);
        }
        Ok(RuleSet {
            revision,
            interval_ms,
            rules,
            params: params.clone(),
        })
    }

    /// The rule that decides: pid rules first, then the order given.
    pub fn first_match(&self, facts: &Facts) -> Option<usize> {
        let find = |by_pid: bool| {
            self.rules.iter().position(|rule| {
                rule.condition.process.is_some() == by_pid && rule.condition.holds(facts)
            })
        };
        find(true).or_else(|| find(false))
    }
}

fn is_path_prefix(prefix: &str, path: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn parse_classes(value: &Value, max_tag: u8) -> Result<Vec<(String, Tag)>, ParamError> {
    let mut classes: Vec<(String, Tag)> = Vec::new();
    for (index, value) in array("classes", value, usize::from(Tag::MAX))?
        .iter()
        .enumerate()
    {
        let field = format!("classes[{index}]");
        let members = object(&field, value)?;
        let name = text(
            &format!("{field}.name"),
            get(members, "name"),
            MAX_NAME_CHARS,
        )?;
        let (tag_field, tag_value) = (format!("{field}.tag"), get(members, "tag"));
        let number = integer(&tag_field, tag_value, 1..=u64::from(Tag::MAX))?;
        if number > u64::from(max_tag) {
            let remedy = format!(
                "this guest's kernel carries tags 1 to {max_tag}; use one of them, or a kernel from 6.5 on"
            );
            return Err(ParamError::new(tag_field, tag_value, remedy));
        }
        let tag = Tag::new(number)
            .ok_or_else(|| ParamError::new(&tag_field, tag_value, "use 1 to 15"))?;
        if classes.iter().any(|(other, _)| *other == name) {
            return Err(ParamError::new(
                format!("{field}.name"),
                &value["name"],
                "name every class once",
            ));
        }
        if classes.iter().any(|(_, other)| *other == tag) {
            return Err(ParamError::new(
                tag_field,
                tag_value,
                "give every class a tag of its own",
            ));
        }
        classes.push((name, tag));
    }
    Ok(classes)
}

fn parse_rule(
    field: &str,
    value: &Value,
    classes: &[(String, Tag)],
    room: &mut PatternRoom,
) -> Result<Rule, ParamError> {
    let members = object(field, value)?;
    let id = text(&format!("{field}.id"), get(members, "id"), MAX_NAME_CHARS)?;
    let (class_field, class_value) = (format!("{field}.class"), get(members, "class"));
    let name = text(&class_field, class_value, MAX_NAME_CHARS)?;
    let Some((class, tag)) = classes.iter().find(|(class, _)| *class == name) else {
        let known: Vec<&str> = classes.iter().map(|(class, _)| class.as_str()).collect();
        let remedy = format!("use a class of the list `classes` ({})", known.join(", "));
        return Err(ParamError::new(class_field, class_value, remedy));
    };
    Ok(Rule {
        id,
        class: class.clone(),
        tag: *tag,
        condition: parse_match(&format!("{field}.match"), get(members, "match"), room)?,
    })
}

fn parse_match(field: &str, value: &Value, room: &mut PatternRoom) -> Result<Match, ParamError> {
    let members = object(field, value)?;
    let mut condition = Match::default();
    let mut start_time = None;
    for (key, value) in members {
        let at = format!("{field}.{key}");
        match key.as_str() {
            "exe" => condition.exe = Some(absolute_path(&at, value)?),
            "cmdline" => condition.cmdline = Some(pattern(&at, value, room)?),
            "user" => condition.user = Some(text(&at, value, MAX_NAME_CHARS)?),
            "unit" => condition.unit = Some(unit_name(&at, value)?),
            "cgroup" => condition.cgroup = Some(absolute_path(&at, value)?),
            "pid" => {
                let pid = integer(&at, value, 1..=PID_MAX)?;
                if pid == INIT {
                    let remedy = "pid 1 is never put into a class: every service would inherit it";
                    return Err(ParamError::new(at, value, remedy));
                }
                condition.process = Some((pid as i32, 0));
            }
            "start_time_ticks" => start_time = Some(integer(&at, value, 0..=u64::MAX)?),
            _ => {
                return Err(ParamError::new(
                    at,
                    value,
                    format!("use some of: {MATCH_KEYS}"),
                ));
            }
        }
    }
    match (&mut condition.process, start_time) {
        (Some(process), Some(ticks)) => process.1 = ticks,
        (None, None) => {}
        (Some(_), None) => {
            let remedy = "give field 22 of /proc/PID/stat too, or a reused pid would match";
            return Err(ParamError::new(
                format!("{field}.start_time_ticks"),
                &Value::Null,
                remedy,
            ));
        }
        (None, Some(_)) => {
            let remedy = "start_time_ticks belongs to a pid; give both";
            return Err(ParamError::new(
                format!("{field}.pid"),
                &Value::Null,
                remedy,
            ));
        }
    }
    if condition == Match::default() {
        return Err(ParamError::new(
            field,
            value,
            format!("use at least one of: {MATCH_KEYS}"),
        ));
    }
    Ok(condition)
}

fn get<'a>(members: &'a Map<String, Value>, key: &str) -> &'a Value {
    members.get(key).unwrap_or(&Value::Null)
}

fn object<'a>(field: &str, value: &'a Value) -> Result<&'a Map<String, Value>, ParamError> {
    value
        .as_object()
        .ok_or_else(|| ParamError::new(field, value, "give an object"))
}

fn array<'a>(field: &str, value: &'a Value, most: usize) -> Result<&'a [Value], ParamError> {
    match value.as_array() {
        Some(list) if list.len() <= most => Ok(list),
        _ => Err(ParamError::new(
            field,
            value,
            format!("give a list of at most {most}"),
        )),
    }
}

fn integer(
    field: &str,
    value: &Value,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, ParamError> {
    match value.as_u64() {
        Some(number) if range.contains(&number) => Ok(number),
        _ => {
            let remedy = format!("give an integer from {} to {}", range.start(), range.end());
            Err(ParamError::new(field, value, remedy))
        }
    }
}

fn text(field: &str, value: &Value, most: usize) -> Result<String, ParamError> {
    match value.as_str() {
        Some(text) if !text.is_empty() && text.len() <= most && !text.contains('\0') => {
            Ok(text.to_owned())
        }
        _ => Err(ParamError::new(
            field,
            value,
            format!("give a text of 1 to {most} bytes"),
        )),
    }
}

fn absolute_path(field: &str, value: &Value) -> Result<String, ParamError> {
    let path = text(field, value, MAX_TEXT_BYTES)?;
    if !path.starts_with('/') {
        return Err(ParamError::new(
            field,
            value,
            "give a path from the root, such as /usr/bin/vlc",
        ));
    }
    Ok(path)
}

fn unit_name(field: &str, value: &Value) -> Result<String, ParamError> {
    let unit = text(field, value, MAX_NAME_CHARS * 2)?;
    if unit.contains('/') || !unit.contains('.') {
        return Err(ParamError::new(
            field,
            value,
            "give a unit with its suffix, such as nginx.service",
        ));
    }
    Ok(unit)
}

fn pattern(
    field: &str,
    value: &Value,
    room: &mut PatternRoom,
) -> Result<CmdlinePattern, ParamError> {
    let source = text(field, value, MAX_TEXT_BYTES)?;
    room.compile(&source).map(CmdlinePattern).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or("bad syntax").trim();
        let remedy = match error {
            regex::Error::CompiledTooBig(_) => format!(
                "give a shorter or simpler pattern, or fewer of them \
                 ({reason} Together they may have {MAX_REGEXES_BYTES}.)"
            ),
            _ => format!("give a regular expression ({reason})"),
        };
        ParamError::new(field, value, remedy)
    })
}

/// Memory left for the patterns of one set. How much a compiled pattern takes
/// is not told, only whether it is within a limit: the limit is doubled until
/// it is, and charged.
struct PatternRoom {
    left_bytes: usize,
    /// What each may use to remember states as it searches.
    search_bytes: usize,
}

impl PatternRoom {
    fn of(rules: usize) -> PatternRoom {
        PatternRoom {
            left_bytes: MAX_REGEXES_BYTES,
            search_bytes: (MAX_REGEXES_BYTES / rules.max(1)).min(MAX_REGEX_BYTES),
        }
    }

    fn compile(&mut self, source: &str) -> Result<Regex, regex::Error> {
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

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
