// SPDX-License-Identifier: GPL-2.0-or-later
//! Subscriptions of programs to events of a class. The host knows one subscription for each
//! class; here are those of all programs, and how they make that one.

use super::channel_abi::{CLASS_NAME_BYTES, RESOURCE_NAMES, RESOURCES, TAGS, event};
use super::events::Event;
use serde::{Deserialize, Serialize};

pub const MAX_REQUEST_BYTES: usize = 512;
pub const MESSAGE_BYTES: usize = 72;
/// Names of the kinds by their numbers, from 1 on.
pub const KIND_NAMES: [&str; 5] = [
    "limited",
    "no-longer-limited",
    "limit-changed",
    "backlog",
    "grants-changed",
];
const ALL_KINDS: u8 = (1 << event::ECHO) - 2;
const ALL_RESOURCES: u8 = (1 << RESOURCES) - 1;

/// What a program asks for, as it is sent to the agent: one JSON object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Names of kinds; none: all.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Names of resources; none: all.
    #[serde(default)]
    pub resources: Vec<String>,
    /// Bytes above which a backlog is an event.
    #[serde(default)]
    pub backlog: u64,
    /// Of a process of the same user, or any if root asks. Null: the asker's own.
    pub class: Option<String>,
}

/// Which events of its class a program gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// Bit *k*: kind *k*.
    pub kinds: u8,
    /// Bit *r*: resource *r*.
    pub resources: u8,
    pub backlog_bytes: u64,
}

impl Request {
    pub fn parse(bytes: &[u8]) -> Result<(Request, Filter), String> {
        if bytes.len() > MAX_REQUEST_BYTES {
            return Err(format!("a request has at most {MAX_REQUEST_BYTES} bytes"));
        }
        let request: Request = serde_json::from_slice(bytes)
            .map_err(|error| format!("the request is not an object of this kind ({error})"))?;
        let filter = request.filter()?;
        Ok((request, filter))
    }

    /// The error names the value and those that there are.
    pub fn filter(&self) -> Result<Filter, String> {
        let kinds = bits("kinds", &self.kinds, &KIND_NAMES)? << 1;
        let resources = bits("resources", &self.resources, &RESOURCE_NAMES)?;
        Ok(Filter {
            kinds: if kinds == 0 { ALL_KINDS } else { kinds },
            resources: if resources == 0 {
                ALL_RESOURCES
            } else {
                resources
            },
            backlog_bytes: self.backlog,
        })
    }
}

/// Bit *n*: the name number *n*.
fn bits(member: &str, names: &[String], known: &[&str]) -> Result<u8, String> {
    let mut bits = 0;
    for name in names {
        let number = known.iter().position(|other| other == name);
        let number = number.ok_or_else(|| {
            let name: String = name.chars().take(40).collect();
            format!("{member}: {name:?} is none of {}", known.join(", "))
        })?;
        bits |= 1 << number;
    }
    Ok(bits)
}

impl Filter {
    pub fn takes(&self, event: &Event) -> bool {
        let is_of_resource =
            event.kind == event::GRANTS || self.resources >> event.resource & 1 == 1;
        let is_above = event.kind != event::BACKLOG || event.datum > self.backlog_bytes;
        self.kinds >> event.kind & 1 == 1 && is_of_resource && is_above
    }

    fn wants_backlog(&self) -> bool {
        self.kinds >> event::BACKLOG & 1 == 1
    }
}

/// The host's subscription of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    pub kinds: u8,
    pub backlog_bytes: u64,
}

/// What the host is to tell of each class, for programs with these classes and filters.
pub fn needs(subscribers: impl Iterator<Item = (u8, Filter)>) -> [Option<Need>; TAGS] {
    let mut needs = [None; TAGS];
    // A subscription ends with its class, and is to be made anew after a change of the grants.
    // The class of tag 0 stays, and tells of it.
    let least = Need {
        kinds: 1 << event::GRANTS,
        backlog_bytes: u64::MAX,
    };
    for (tag, filter) in subscribers {
        needs[0].get_or_insert(least);
        let need = needs[usize::from(tag)].get_or_insert(least);
        need.kinds |= filter.kinds;
        if filter.wants_backlog() {
            need.backlog_bytes = need.backlog_bytes.min(filter.backlog_bytes);
        }
    }
    needs
}

/// Which backlogs of a class were above a program's own threshold. The host tells when the
/// lowest of all programs' thresholds is passed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Above(u8);

impl Above {
    /// Whether the backlog rises above the threshold now.
    pub fn rises(&mut self, filter: &Filter, resource: usize, backlog_bytes: u64) -> bool {
        let was_above = self.0 >> resource & 1 == 1;
        let is_above = backlog_bytes > filter.backlog_bytes;
        self.0 = self.0 & !(1 << resource) | u8::from(is_above) << resource;
        is_above && !was_above && filter.wants_backlog()
    }
}

/// An event as a program gets it: integers are of the machine's byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub event: Event,
    /// Events of this class that the program did not get, since the last message.
    pub lost: u64,
    pub class: String,
}

impl Message {
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let of = &self.event;
        bytes[..8].copy_from_slice(&of.number.to_ne_bytes());
        bytes[8..16].copy_from_slice(&of.time_ns.to_ne_bytes());
        bytes[16..20].copy_from_slice(&[of.kind, of.tag, of.resource, of.priority]);
        bytes[24..32].copy_from_slice(&of.datum.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.lost.to_ne_bytes());
        let name = self.class.as_bytes();
        let length = name.len().min(CLASS_NAME_BYTES);
        bytes[40..40 + length].copy_from_slice(&name[..length]);
        bytes
    }

    /// Nothing if that is no message.
    pub fn parse(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        let event = Event {
            number: word(0),
            time_ns: word(8),
            kind: bytes[16],
            tag: bytes[17],
            resource: bytes[18],
            priority: bytes[19],
            datum: word(24),
        };
        let class = super::channel_abi::text(&bytes[40..40 + CLASS_NAME_BYTES]);
        let lost = word(32);
        event.is_known().then_some(Message { event, lost, class })
    }

    pub fn kind_name(&self) -> &'static str {
        KIND_NAMES[usize::from(self.event.kind) - 1]
    }

    pub fn resource_name(&self) -> &'static str {
        RESOURCE_NAMES[usize::from(self.event.resource)]
    }

    /// As a real-time signal carries it: bits 63 to 56 the kind, 55 to 48 the resource, the
    /// others the datum, or all ones if it is greater.
    pub fn signal_value(&self) -> u64 {
        const MOST: u64 = (1 << 48) - 1;
        let of = &self.event;
        u64::from(of.kind) << 56 | u64::from(of.resource) << 48 | of.datum.min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u8, resource: u8, datum: u64) -> Event {
        Event {
            number: 9,
            time_ns: 8,
            kind,
            tag: 3,
            resource,
            priority: 1,
            datum,
        }
    }

    fn filter(text: &str) -> Filter {
        Request::parse(text.as_bytes()).unwrap().1
    }

    #[test]
    fn a_request_chooses_kinds_and_resources() {
        let all = filter("{}");
        for kind in event::LIMITED..event::ECHO {
            assert!(all.takes(&event(kind, 3, 1)));
        }
        let some = filter(
            r#"{"kinds": ["backlog", "grants-changed"], "resources": ["disk.write"], "backlog": 100}"#,
        );
        assert!(some.takes(&event(event::BACKLOG, 1, 101)));
        assert!(!some.takes(&event(event::BACKLOG, 1, 100)));
        assert!(!some.takes(&event(event::BACKLOG, 0, 101)));
        assert!(!some.takes(&event(event::LIMITED, 1, 101)));
        assert!(some.takes(&event(event::GRANTS, 0, 0)), "of no resource");
    }

    #[test]
    fn a_bad_request_is_named() {
        for (text, wanted) in [
            (
                r#"{"kinds": ["limit"]}"#,
                "kinds: \"limit\" is none of limited, ",
            ),
            (
                r#"{"resources": ["cpu"]}"#,
                "resources: \"cpu\" is none of disk.read, ",
            ),
            (r#"{"backlog": -1}"#, "integer `-1`"),
            (r#"{"kind": []}"#, "unknown field `kind`"),
            ("[", "not an object"),
            (&" ".repeat(513), "at most 512 bytes"),
        ] {
            let error = Request::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn the_host_is_asked_for_what_one_program_wants() {
        let limited = filter(r#"{"kinds": ["limited"], "backlog": 1}"#);
        let deep = filter(r#"{"kinds": ["backlog"], "backlog": 900}"#);
        let shallow = filter(r#"{"kinds": ["backlog"], "backlog": 30}"#);
        let needs = needs([(3, limited), (3, deep), (3, shallow), (5, limited)].into_iter());
        let kinds = 1 << event::LIMITED | 1 << event::BACKLOG | 1 << event::GRANTS;
        let third = Need {
            kinds,
            backlog_bytes: 30,
        };
        assert_eq!(needs[3], Some(third));
        assert_eq!(needs[5].unwrap().backlog_bytes, u64::MAX, "nobody wants it");
        let first = needs[0].unwrap();
        assert_eq!(first.kinds, 1 << event::GRANTS, "of classes that come");
        assert_eq!(needs.iter().flatten().count(), 3);
    }

    #[test]
    fn a_backlog_is_told_when_it_rises() {
        let deep = filter(r#"{"kinds": ["backlog"], "backlog": 900}"#);
        let mut above = Above::default();
        let told = [30, 901, 5000, 900, 901].map(|bytes| above.rises(&deep, 1, bytes));
        assert_eq!(told, [false, true, false, false, true]);
        assert!(above.rises(&deep, 2, 1000), "each resource by itself");
        let other = filter(r#"{"kinds": ["limited"]}"#);
        assert!(!Above::default().rises(&other, 1, 1));
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let message = Message {
            event: event(event::BACKLOG, 2, u64::MAX),
            lost: 7,
            class: "video".to_owned(),
        };
        let bytes = message.to_bytes();
        assert_eq!(Message::parse(&bytes), Some(message.clone()));
        assert_eq!(
            (message.kind_name(), message.resource_name()),
            ("backlog", "net.inbound")
        );
        assert_eq!(message.signal_value(), 0x0402_ffff_ffff_ffff);
        assert_eq!(Message::parse(&bytes[1..]), None);
        let mut strange = bytes;
        strange[16] = 0;
        assert_eq!(Message::parse(&strange), None);
    }
}
