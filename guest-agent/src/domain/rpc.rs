// SPDX-License-Identifier: GPL-2.0-or-later
//! JSON-RPC 2.0, one object a line (docs/specs/agent-protocol.md). A line
//! becomes a checked call, an error to send back, or nothing: answers from the
//! peer are never answered, or two sides could accuse each other for ever.

use super::rules::RuleSet;
use serde_json::{Value, json};

pub const OLDEST_PROTOCOL: u64 = 1;
pub const PROTOCOL: u64 = 2;
/// Before it, one rule that cannot be followed refuses its whole set.
pub const REFUSES_ONE_RULE: u64 = 2;
pub const TELLS_OF_CHANNEL: u64 = 2;

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const MAX_ID_BYTES: usize = 256;
const SHOWN_VALUE_CHARS: usize = 200;
const SHOWN_REMEDY_CHARS: usize = 400;

/// A refused parameter: its place, its value and the remedy.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamError {
    pub field: String,
    pub value: Value,
    pub remedy: String,
}

impl ParamError {
    pub fn new(field: impl Into<String>, value: &Value, remedy: impl Into<String>) -> ParamError {
        ParamError {
            field: cut(field.into(), SHOWN_VALUE_CHARS),
            value: shown(value),
            remedy: cut(remedy.into(), SHOWN_REMEDY_CHARS),
        }
    }
}

impl std::fmt::Display for ParamError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "{}: {} is refused: {}",
            self.field, self.value, self.remedy
        )
    }
}

#[derive(Debug)]
pub enum Call {
    Hello {
        protocol: u64,
    },
    SetRules(Box<RuleSet>),
    GetProcesses,
    /// Have it told of streams' round trips.
    WatchStreams,
    /// The condition of a rule, as it came.
    PreviewRule(Value),
}

#[derive(Debug)]
pub enum Incoming {
    /// Without an id the caller wants no answer.
    Call {
        id: Option<Value>,
        call: Call,
    },
    /// Send this line back.
    Refused(Value),
    Ignored,
}

/// Reads one line. `max_tag` is the highest tag the kernel can carry.
pub fn parse_line(line: &[u8], max_tag: u8) -> Incoming {
    let Ok(value) = serde_json::from_slice::<Value>(line) else {
        return Incoming::Refused(parse_error("the line is not JSON in UTF-8"));
    };
    let Value::Object(mut object) = value else {
        return refuse(
            INVALID_REQUEST,
            Value::Null,
            "the line is not a JSON object",
        );
    };
    if !object.contains_key("method")
        && (object.contains_key("result") || object.contains_key("error"))
    {
        return Incoming::Ignored;
    }
    let id = object.remove("id");
    let answer_to = match &id {
        Some(Value::String(text)) if text.len() > MAX_ID_BYTES => {
            let message = format!("id is longer than {MAX_ID_BYTES} bytes");
            return refuse(INVALID_REQUEST, Value::Null, &message);
        }
        Some(id @ (Value::Number(_) | Value::String(_) | Value::Null)) => id.clone(),
        None => Value::Null,
        Some(_) => {
            let message = "id is neither a string nor a number";
            return refuse(INVALID_REQUEST, Value::Null, message);
        }
    };
    if object.get("jsonrpc") != Some(&json!("2.0")) {
        return refuse(INVALID_REQUEST, answer_to, "jsonrpc is not \"2.0\"");
    }
    let Some(Value::String(method)) = object.remove("method") else {
        return refuse(INVALID_REQUEST, answer_to, "method is not a string");
    };
    let params = object.remove("params").unwrap_or(Value::Null);
    match parse_call(&method, &params, max_tag) {
        Ok(call) => Incoming::Call { id, call },
        // A notification is not answered, not even when it is wrong.
        Err(_) if id.is_none() => Incoming::Ignored,
        Err(Refusal::Method) => {
            let message = format!("unknown method {}", shown(&Value::String(method)));
            refuse(METHOD_NOT_FOUND, answer_to, &message)
        }
        Err(Refusal::Param(error)) => Incoming::Refused(invalid_params(answer_to, &error)),
    }
}

enum Refusal {
    Method,
    Param(ParamError),
}

fn parse_call(method: &str, params: &Value, max_tag: u8) -> Result<Call, Refusal> {
    match method {
        "hello" => {
            let protocol = params.get("protocol").unwrap_or(&Value::Null);
            match protocol.as_u64() {
                Some(protocol @ OLDEST_PROTOCOL..=PROTOCOL) => Ok(Call::Hello { protocol }),
                _ => {
                    let remedy = format!(
                        "this agent speaks protocols {OLDEST_PROTOCOL} to {PROTOCOL}; \
                         install a matching agent"
                    );
                    let error = ParamError::new("protocol", protocol, remedy);
                    Err(Refusal::Param(error))
                }
            }
        }
        "set_rules" => RuleSet::from_params(params, max_tag)
            .map(|rules| Call::SetRules(Box::new(rules)))
            .map_err(Refusal::Param),
        "preview_rule" => Ok(Call::PreviewRule(params["match"].clone())),
        "get_processes" => without_params(method, params, Call::GetProcesses),
        "watch_streams" => without_params(method, params, Call::WatchStreams),
        _ => Err(Refusal::Method),
    }
}

fn without_params(method: &str, params: &Value, call: Call) -> Result<Call, Refusal> {
    match params {
        Value::Null => Ok(call),
        Value::Object(members) if members.is_empty() => Ok(call),
        other => {
            let remedy = format!("{method} takes an empty object");
            let error = ParamError::new("params", other, remedy);
            Err(Refusal::Param(error))
        }
    }
}

pub fn result(id: Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

pub fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

pub fn parse_error(message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": PARSE_ERROR, "message": message}})
}

pub fn invalid_params(id: Value, error: &ParamError) -> Value {
    let data = json!({"field": error.field, "value": error.value, "remedy": error.remedy});
    let error = json!({"code": INVALID_PARAMS, "message": error.to_string(), "data": data});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

fn refuse(code: i64, id: Value, message: &str) -> Incoming {
    let error = json!({"code": code, "message": message});
    Incoming::Refused(json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

/// The value as an error shows it: large ones are cut.
fn shown(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(cut(text.clone(), SHOWN_VALUE_CHARS)),
        Value::Array(_) | Value::Object(_) => {
            let text = value.to_string();
            if text.chars().count() <= SHOWN_VALUE_CHARS {
                value.clone()
            } else {
                Value::String(cut(text, SHOWN_VALUE_CHARS))
            }
        }
        short => short.clone(),
    }
}

fn cut(text: String, most_chars: usize) -> String {
    match text.char_indices().nth(most_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(line: &str) -> Value {
        match parse_line(line.as_bytes(), 15) {
            Incoming::Refused(answer) => answer,
            other => panic!("{line} gave {other:?}"),
        }
    }

    #[test]
    fn hello_is_accepted() {
        let line = br#"{"jsonrpc":"2.0","id":7,"method":"hello","params":{"protocol":1}}"#;
        let Incoming::Call {
            id,
            call: Call::Hello { protocol: 1 },
        } = parse_line(line, 15)
        else {
            panic!("refused");
        };
        assert_eq!(id, Some(json!(7)));
    }

    #[test]
    fn another_protocol_is_refused_with_a_remedy() {
        let answer =
            refused(r#"{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":3}}"#);
        assert_eq!(answer["error"]["code"], -32602);
        assert_eq!(answer["error"]["data"]["field"], "protocol");
        assert_eq!(answer["error"]["data"]["value"], 3);
        assert!(answer["error"]["data"]["remedy"].is_string());
    }

    #[test]
    fn unreadable_lines_give_parse_errors() {
        for line in [
            &b"{"[..],
            b"\xff\xfe",
            b"{\"a\":\"\xff\"}",
            b"nonsense",
            &[b'['; 100_000],
        ] {
            let Incoming::Refused(answer) = parse_line(line, 15) else {
                panic!("accepted");
            };
            assert_eq!(answer["error"]["code"], -32700);
            assert_eq!(answer["id"], Value::Null);
        }
    }

    #[test]
    fn wrong_shapes_are_invalid_requests() {
        for line in [
            "[]",
            "3",
            r#"{"id":1,"method":"hello"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":4}"#,
            r#"{"jsonrpc":"2.0","id":[1],"method":"hello"}"#,
        ] {
            assert_eq!(refused(line)["error"]["code"], -32600, "{line}");
        }
    }

    #[test]
    fn unknown_methods_are_named() {
        let answer = refused(r#"{"jsonrpc":"2.0","id":"x","method":"reboot"}"#);
        assert_eq!(answer["error"]["code"], -32601);
        assert_eq!(answer["id"], "x");
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("reboot")
        );
    }

    #[test]
    fn answers_and_wrong_notifications_are_not_answered() {
        for line in [
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"reboot"}"#,
        ] {
            assert!(
                matches!(parse_line(line.as_bytes(), 15), Incoming::Ignored),
                "{line}"
            );
        }
    }

    #[test]
    fn huge_values_are_cut_in_errors() {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"hello","params":{{"protocol":"{}"}}}}"#,
            "y".repeat(5000)
        );
        let value = refused(&line)["error"]["data"]["value"]
            .as_str()
            .unwrap()
            .len();
        assert!(value < 1000, "{value}");
    }

    #[test]
    fn answers_stay_short_whatever_is_asked() {
        let long = "k".repeat(100_000);
        let params = json!({"revision": &long});
        for line in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "set_rules", "params": params}),
            json!({"jsonrpc": "2.0", "id": &long, "method": "hello"}),
            json!({"jsonrpc": "2.0", "id": 1, "method": &long}),
        ] {
            let answer = refused(&line.to_string()).to_string();
            assert!(answer.len() < 2000, "{} bytes", answer.len());
        }
    }

    proptest! {
        #[test]
        fn prop_no_bytes_break_the_parser(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_line(&line, 15);
        }

        #[test]
        fn prop_no_params_break_a_call(
            method in "hello|set_rules|get_processes|watch_streams|other",
            params in prop_oneof![
                Just(json!(null)), Just(json!([])), Just(json!({"revision": -1})),
                any::<f64>().prop_map(|n| json!({"protocol": n, "revision": n, "interval_ms": n})),
                ".*".prop_map(|s| json!({"protocol": s, "rules": s, "classes": [s], "revision": 1})),
            ],
        ) {
            let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            match parse_line(line.to_string().as_bytes(), 15) {
                Incoming::Refused(answer) => prop_assert!(answer["error"]["code"].is_i64()),
                Incoming::Call { .. } => {}
                Incoming::Ignored => prop_assert!(false, "a request with an id went unanswered"),
            }
        }
    }
}
