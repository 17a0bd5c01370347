// SPDX-License-Identifier: GPL-2.0-or-later
//! Wishes of this guest's root: which process belongs to which granted class. A request is a
//! datagram to the socket of reports.

use serde::{Deserialize, Serialize};

/// Each is a rule that every new process is compared with, and a line of the answer to `List`.
pub const MOST_WISHES: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    pub pid: i32,
    /// Field 22 of /proc/PID/stat, so that a reused pid never matches.
    pub start_time_ticks: u64,
    pub class: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Put {
        /// None: the sender.
        pid: Option<i32>,
        class: String,
    },
    Release {
        pid: i32,
    },
    List,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub shape: Request,
}

impl Message {
    /// None of what is no request of this kind: it is a report, then.
    pub fn parse(bytes: &[u8]) -> Option<Message> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_reports() {
        for (text, request) in [
            (
                r#"{"shape":{"put":{"pid":7,"class":"bulk"}}}"#,
                Request::Put {
                    pid: Some(7),
                    class: "bulk".to_owned(),
                },
            ),
            (
                r#"{"shape":{"release":{"pid":7}}}"#,
                Request::Release { pid: 7 },
            ),
            (r#"{"shape":"list"}"#, Request::List),
        ] {
            let message = Message::parse(text.as_bytes());
            assert_eq!(message, Some(Message { shape: request }), "{text}");
        }
        for text in [
            r#"{"name":"film","rate":25,"frames":7}"#,
            r#"{"shape":"list","name":"film"}"#,
            r#"{"shape":{"put":{"pid":7}}}"#,
            "",
        ] {
            assert_eq!(Message::parse(text.as_bytes()), None, "{text}");
        }
    }
}
