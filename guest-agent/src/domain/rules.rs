// SPDX-License-Identifier: GPL-2.0-or-later
//! Rules: which processes belong to which class. All is checked when it arrives,
//! and cannot fail later. A rule that cannot be followed is refused by itself;
//! a set that cannot be understood is refused whole.

use super::container;
use super::pattern::{Pattern, PatternRoom};
use super::rpc::ParamError;
use super::tag::Tag;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use std::collections::HashSet;

pub const DEFAULT_INTERVAL_MS: u64 = 1000;
pub(super) const MAX_RULES: usize = 1024;
const PID_MAX: i32 = 1 << 22;
const MAX_WHY_BYTES: usize = 300;

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

/// The path of an executable, and of the file to which links lead from there in this
/// guest. A process shows the path of its file alone.
#[derive(Debug, Clone)]
pub struct Program {
    path: String,
    file: Option<String>,
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.path == other.path
    }
}

/// One member of a rule's `match`, named as it is here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    #[serde(deserialize_with = "program")]
    Exe(Program),
    #[serde(deserialize_with = "pattern")]
    Cmdline(Pattern),
    #[serde(deserialize_with = "name")]
    User(String),
    #[serde(deserialize_with = "unit_name")]
    Unit(String),
    #[serde(deserialize_with = "cgroup")]
    Cgroup(Pattern),
    #[serde(deserialize_with = "container_id")]
    Container(String),
    #[serde(deserialize_with = "pod_uid")]
    Pod(String),
    #[serde(deserialize_with = "pid")]
    Pid(i32),
    /// Beside the process id, so that a reused one never matches.
    StartTimeTicks(u64),
}

/// Conditions that must all hold; at least one is present.
#[derive(Debug, Clone, PartialEq)]
pub struct Match(Vec<Condition>);

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub id: String,
    pub class: String,
    pub tag: Tag,
    pub condition: Match,
    /// Root of this guest asked for it. The rules of the host go first.
    pub is_wish: bool,
}

/// A rule that is not in force, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    pub id: String,
    pub error: ParamError,
}

#[derive(Debug, Clone)]
pub struct RuleSet {
    pub revision: u64,
    pub interval_ms: u64,
    pub rules: Vec<Rule>,
    pub refused: Vec<Refused>,
    /// As received, so that a restarted agent can take them up again.
    pub params: Value,
    /// Left for the pattern of a further rule.
    room: PatternRoom,
}

impl Condition {
    fn holds(&self, facts: &Facts) -> bool {
        match self {
            Condition::Exe(program) => program.is_run_by(facts),
            Condition::Cmdline(pattern) => pattern.is_found(&facts.cmdline),
            Condition::User(user) => *user == facts.user || *user == facts.uid.to_string(),
            Condition::Unit(unit) => facts.cgroup.split('/').any(|part| part == unit),
            Condition::Cgroup(pattern) => pattern.is_found(&facts.cgroup),
            Condition::Container(id) => container::is_in_container(&facts.cgroup, id),
            Condition::Pod(uid) => container::is_in_pod(&facts.cgroup, uid),
            Condition::Pid(pid) => *pid == facts.pid,
            Condition::StartTimeTicks(ticks) => *ticks == facts.start_time_ticks,
        }
    }
}

impl Program {
    /// A file of another name than the link may be many programs, as busybox is: then the
    /// name counts by which the process was started.
    fn is_run_by(&self, facts: &Facts) -> bool {
        let is_meant = |file: &String| {
            let (link, name) = (last_part(&self.path), last_part(file));
            *file == facts.exe && (link == name || [link, name].contains(&facts.called()))
        };
        self.path == facts.exe || self.file.as_ref().is_some_and(is_meant)
    }
}

impl Facts {
    /// The name by which the program was started; a login shell's begins with a dash.
    fn called(&self) -> &str {
        let first = self.cmdline.split(' ').next().unwrap_or("");
        last_part(first.strip_prefix('-').unwrap_or(first))
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Refused {
    /// The host knows the rule's place and the value by the id: they are left out. The reasons
    /// of all rules of a set fit into a line, so each is short and has nothing to escape
    /// at length.
    pub fn why(&self) -> String {
        let field = &self.error.field;
        let (_, within) = field.split_once('.').unwrap_or(("", field));
        let mut why = format!("{within}: {}", self.error.remedy);
        why = why.replace(char::is_control, "\u{fffd}");
        let mut end = why.len().min(MAX_WHY_BYTES);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        why.truncate(end);
        why
    }
}

impl Match {
    pub fn holds(&self, facts: &Facts) -> bool {
        self.0.iter().all(|condition| condition.holds(facts))
    }

    /// Follows the links of its program; whether they lead to another file than before. A
    /// file that is gone is still the program that runs.
    pub fn follow_links(&mut self, file_of: impl Fn(&str) -> Option<String>) -> bool {
        let mut has_changed = false;
        for condition in &mut self.0 {
            if let Condition::Exe(program) = condition {
                let file = file_of(&program.path).or_else(|| program.file.clone());
                has_changed |= file != program.file;
                program.file = file;
            }
        }
        has_changed
    }

    fn is_of_process(&self) -> bool {
        let is_pid = |condition: &Condition| matches!(condition, Condition::Pid(_));
        self.0.iter().any(is_pid)
    }
}

impl Rule {
    /// Of a process that root of this guest has put into a granted class.
    pub fn of_wish(pid: i32, start_time_ticks: u64, class: &str, tag: Tag) -> Rule {
        let conditions = vec![
            Condition::Pid(pid),
            Condition::StartTimeTicks(start_time_ticks),
        ];
        Rule {
            id: format!("shape-{pid}-{start_time_ticks}"),
            class: class.to_owned(),
            tag,
            condition: Match(conditions),
            is_wish: true,
        }
    }

    /// Whether both are one rule, though its class may have changed: heirs of the rule
    /// keep it.
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
            refused: Vec::new(),
            params: Value::Null,
            room: PatternRoom::of(0),
        }
    }

    /// Each tag once, as its first rule stands.
    pub fn tags_in_order(&self) -> Vec<Tag> {
        let mut order = Vec::new();
        for rule in &self.rules {
            if !order.contains(&rule.tag) {
                order.push(rule.tag);
            }
        }
        order
    }

    /// The condition of a rule that may be added to these.
    pub fn further(&self, value: &Value) -> Result<Match, ParamError> {
        parse_match("match", value, &mut self.room.clone())
    }

    /// The error is of the set; those of single rules are in `refused`.
    pub fn from_params(params: &Value, max_tag: u8) -> Result<RuleSet, ParamError> {
        let raw = read_set(params)?;
        check_classes(&raw.classes, max_tag)?;
        if raw.rules.len() > MAX_RULES {
            let remedy = format!("give a list of at most {MAX_RULES}");
            return Err(ParamError::new("rules", &params["rules"], remedy));
        }
        let mut set = RuleSet {
            revision: raw.revision,
            interval_ms: raw.interval_ms,
            params: params.clone(),
            room: PatternRoom::of(raw.rules.len()),
            ..RuleSet::none()
        };
        let mut ids = HashSet::new();
        for (index, raw_rule) in raw.rules.into_iter().enumerate() {
            let id = raw_rule.id.clone();
            if !ids.insert(id.clone()) {
                let remedy = "give every rule an id of its own";
                return Err(ParamError::new(
                    format!("rules[{index}].id"),
                    &id.into(),
                    remedy,
                ));
            }
            match parse_rule(
                &format!("rules[{index}]"),
                raw_rule,
                &raw.classes,
                &mut set.room,
            ) {
                Ok(rule) => set.rules.push(rule),
                Err(error) => set.refused.push(Refused { id, error }),
            }
        }
        Ok(set)
    }

    /// The rule that decides: pid rules first, then the order given, then wishes of the guest.
    pub fn first_match(&self, facts: &Facts) -> Option<usize> {
        let find = |by_pid: bool, is_wish: bool| {
            self.rules.iter().position(|rule| {
                rule.is_wish == is_wish
                    && rule.condition.is_of_process() == by_pid
                    && rule.condition.holds(facts)
            })
        };
        find(true, false)
            .or_else(|| find(false, false))
            .or_else(|| find(true, true))
    }
}

/// The parameters of `set_rules`. Of a rule only the id must be readable.
#[derive(Deserialize)]
struct RawSet {
    #[serde(deserialize_with = "revision")]
    revision: u64,
    #[serde(default = "default_interval", deserialize_with = "interval")]
    interval_ms: u64,
    classes: Vec<Class>,
    rules: Vec<RawRule>,
}

#[derive(Deserialize)]
struct Class {
    #[serde(deserialize_with = "name")]
    name: String,
    tag: Tag,
}

#[derive(Deserialize)]
struct RawRule {
    #[serde(deserialize_with = "name")]
    id: String,
    #[serde(default)]
    class: Value,
    #[serde(default)]
    r#match: Value,
}

fn check_classes(classes: &[Class], max_tag: u8) -> Result<(), ParamError> {
    for (index, class) in classes.iter().enumerate() {
        let refuse = |key: &str, value: Value, remedy: &str| {
            Err(ParamError::new(
                format!("classes[{index}].{key}"),
                &value,
                remedy,
            ))
        };
        let number = class.tag.number();
        if number > max_tag {
            let remedy = format!(
                "this guest's kernel carries tags 1 to {max_tag}; use one of them, or a kernel from 6.5 on"
            );
            return refuse("tag", number.into(), &remedy);
        }
        if classes[..index]
            .iter()
            .any(|other| other.name == class.name)
        {
            return refuse("name", class.name.as_str().into(), "name every class once");
        }
        if classes[..index].iter().any(|other| other.tag == class.tag) {
            return refuse("tag", number.into(), "give every class a tag of its own");
        }
    }
    Ok(())
}

fn parse_rule(
    field: &str,
    raw: RawRule,
    classes: &[Class],
    room: &mut PatternRoom,
) -> Result<Rule, ParamError> {
    let Some(class) = classes.iter().find(|class| raw.class == *class.name) else {
        let known: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
        let remedy = format!("use a class of the list `classes` ({})", known.join(", "));
        return Err(ParamError::new(
            format!("{field}.class"),
            &raw.class,
            remedy,
        ));
    };
    Ok(Rule {
        id: raw.id,
        class: class.name.clone(),
        tag: class.tag,
        condition: parse_match(&format!("{field}.match"), &raw.r#match, room)?,
        is_wish: false,
    })
}

fn parse_match(field: &str, value: &Value, room: &mut PatternRoom) -> Result<Match, ParamError> {
    let refuse = |field: String, remedy| Err(ParamError::new(field, value, remedy));
    let Some(members) = value.as_object() else {
        return refuse(field.to_owned(), "give an object");
    };
    match (
        members.contains_key("pid"),
        members.contains_key("start_time_ticks"),
    ) {
        (true, false) => {
            let remedy = "give field 22 of /proc/PID/stat too, or a reused pid would match";
            return refuse(format!("{field}.start_time_ticks"), remedy);
        }
        (false, true) => {
            let remedy = "start_time_ticks belongs to a pid; give both";
            return refuse(format!("{field}.pid"), remedy);
        }
        _ if members.is_empty() => return refuse(field.to_owned(), "give at least one condition"),
        _ => {}
    }
    let mut conditions = Vec::with_capacity(members.len());
    for (key, value) in members {
        let at = format!("{field}.{key}");
        let member = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
        // The member's name says which condition it is.
        let mut condition = Condition::deserialize(member)
            .map_err(|error| ParamError::new(&at, value, error.to_string()))?;
        if let Condition::Cmdline(pattern) | Condition::Cgroup(pattern) = &mut condition {
            let compiled = pattern.compile(room);
            compiled.map_err(|remedy| ParamError::new(at, value, remedy))?;
        }
        conditions.push(condition);
    }
    // The search takes longest: it is left out where another condition fails.
    conditions.sort_by_key(|condition| matches!(condition, Condition::Cmdline(_)));
    Ok(Match(conditions))
}

/// An error names the place in `params`, by the path that serde took.
fn read_set(params: &Value) -> Result<RawSet, ParamError> {
    serde_path_to_error::deserialize(params).map_err(|error| {
        let mut value = params;
        let mut path = "params".to_owned();
        for segment in error.path() {
            value = match segment {
                Segment::Seq { index } => &value[*index],
                Segment::Map { key } => &value[key.as_str()],
                _ => value,
            };
            path = error.path().to_string();
        }
        ParamError::new(path, value, error.inner().to_string())
    })
}

fn default_interval() -> u64 {
    DEFAULT_INTERVAL_MS
}

/// A function for `deserialize_with`: a value, and the remedy for others.
macro_rules! checked {
    ($name:ident -> $type:ty, $remedy:literal, $is_good:expr) => {
        fn $name<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
            let value = <$type>::deserialize(from)?;
            let is_good: fn(&$type) -> bool = $is_good;
            is_good(&value)
                .then_some(value)
                .ok_or_else(|| D::Error::custom($remedy))
        }
    };
}

fn is_text(text: &str, most_bytes: usize) -> bool {
    !text.is_empty() && text.len() <= most_bytes && !text.contains('\0')
}

checked!(revision -> u64, "give an integer of 63 bits", |revision| {
    i64::try_from(*revision).is_ok()
});
checked!(interval -> u64, "give an integer from 100 to 10000", |interval_ms| {
    (100..=10_000).contains(interval_ms)
});
checked!(name -> String, "give a printable text of 1 to 128 bytes", |name| {
    is_text(name, 128) && !name.contains(char::is_control)
});
checked!(
    absolute_path -> String,
    "give a path from the root, such as /usr/bin/vlc, of at most 4096 bytes",
    |path| is_text(path, 4096) && path.starts_with('/')
);
checked!(
    unit_name -> String,
    "give a unit with its suffix, such as nginx.service, of at most 256 bytes",
    |unit| is_text(unit, 256) && unit.contains('.') && !unit.contains('/')
);
checked!(
    container_id -> String,
    "give the id of a container, or its first 12 digits or more, as `docker ps` shows it: its \
     name is known to its daemon alone",
    |id| container::is_id(id)
);
checked!(
    pod_uid -> String,
    "give the UID of a pod, as `metadata.uid` shows it",
    |uid| container::is_uid(uid)
);
checked!(expression -> String, "give a text of 1 to 4096 bytes", |source| {
    is_text(source, 4096)
});
checked!(
    pid -> i32,
    "give an integer from 2 to 4194304: every service would inherit a class of pid 1",
    |pid| (2..=PID_MAX).contains(pid)
);

fn program<'de, D: Deserializer<'de>>(from: D) -> Result<Program, D::Error> {
    let path = absolute_path(from)?;
    Ok(Program { path, file: None })
}

fn cgroup<'de, D: Deserializer<'de>>(from: D) -> Result<Pattern, D::Error> {
    absolute_path(from).map(|path| Pattern::of_path(&path))
}

fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Pattern, D::Error> {
    expression(from).map(Pattern::of_expression)
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
