// SPDX-License-Identifier: GPL-2.0-or-later
//! Events for people and scripts: a line, a real-time signal or a command for each.

use crate::adapters::sockets::ForeignProcess;
use crate::adapters::subscriber::{self, Subscription, queue_signal};
use crate::domain::channel_abi::event;
use crate::domain::subscription::{Message, Request};
use crate::services::log::escaped;
use serde_json::{Value, json};
use std::error::Error;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

/// To whom a signal goes, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub pid: i32,
    /// After SIGRTMIN.
    pub offset: i32,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let (pid, signal) = text.split_once(':').unwrap_or((text, "SIGRTMIN"));
        let pid: i32 = pid.parse().map_err(|_| format!("{pid:?} is no process"))?;
        let offset = match signal.strip_prefix("SIGRTMIN") {
            Some("") => Some(0),
            Some(offset) => offset.strip_prefix('+').and_then(|n| n.parse().ok()),
            None => None,
        };
        let most = libc::SIGRTMAX() - libc::SIGRTMIN();
        match offset.filter(|offset| (0..=most).contains(offset)) {
            Some(offset) if pid > 0 => Ok(Target { pid, offset }),
            Some(_) => Err(format!("{pid} is no process")),
            None => Err(format!(
                "{signal:?} is not SIGRTMIN, or SIGRTMIN+1 to SIGRTMIN+{most}"
            )),
        }
    }
}

/// What is done with each event.
pub enum Action {
    Line,
    Json,
    Signal(Target),
    /// Of the shell.
    Command(String),
}

pub struct Plan {
    pub request: Request,
    /// Events with no greater datum are passed over.
    pub above: Option<u64>,
    pub action: Action,
    /// Nothing: without end.
    pub count: Option<u64>,
}

/// Asks the agent, and acts on each event.
pub fn run(socket: &Path, plan: &Plan) -> Result<(), Box<dyn Error>> {
    let text = serde_json::to_vec(&plan.request)?;
    Request::parse(&text)?;
    // Before the agent is asked: a process that is not there gets no signals.
    let target = match plan.action {
        Action::Signal(Target { pid, .. }) => Some(
            ForeignProcess::open(pid)
                .map_err(|error| format!("cannot signal process {pid} ({error})"))?,
        ),
        _ => None,
    };
    let shown = socket.display();
    let (events, answer) = subscriber::subscribe(socket, &text).map_err(|error| {
        format!("cannot ask {shown} ({error}): see that sluice-agent runs here")
    })?;
    refusal(&answer)?;
    let mut left = plan.count.unwrap_or(u64::MAX);
    while left > 0 {
        let message = next(&events, target.as_ref())?;
        if plan.above.is_some_and(|above| message.event.datum <= above) {
            continue;
        }
        act(&plan.action, &message)?;
        left -= 1;
    }
    Ok(())
}

fn next(events: &Subscription, target: Option<&ForeignProcess>) -> Result<Message, Box<dyn Error>> {
    if let Some(process) = target {
        while !events.wait(&[process.as_fd()], nix::poll::PollTimeout::NONE)? {}
        if subscriber::ready(&[process.as_fd()])?.contains(&true) {
            return Err("the process that gets the signals has ended".into());
        }
    }
    let bytes = events
        .next()?
        .ok_or("the agent has ended the subscription: it was stopped; ask again")?;
    Message::parse(&bytes).ok_or_else(|| {
        let text = String::from_utf8_lossy(&bytes);
        match refusal(&text) {
            Err(error) => error,
            Ok(()) => format!(
                "the agent sent {}: it is of another version",
                escaped(&text)
            )
            .into(),
        }
    })
}

fn refusal(answer: &str) -> Result<(), Box<dyn Error>> {
    let parsed: Value = serde_json::from_str(answer).unwrap_or_default();
    match parsed["error"].as_str() {
        Some(error) => Err(escaped(error).into()),
        None => Ok(()),
    }
}

fn act(action: &Action, message: &Message) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    match action {
        Action::Line => writeln!(out, "{}", line(message))?,
        Action::Json => writeln!(out, "{}", object(message))?,
        Action::Signal(Target { pid, offset }) => {
            let value = message.signal_value();
            queue_signal(*pid, libc::SIGRTMIN() + offset, value)
                .map_err(|error| format!("cannot signal process {pid} ({error})"))?;
        }
        Action::Command(text) => {
            let status = Command::new("sh")
                .args(["-c", text])
                .envs(environment(message))
                .status()
                .map_err(|error| format!("cannot run sh ({error})"))?;
            if !status.success() {
                // The next event may fare better.
                writeln!(std::io::stderr(), "sluice-agent: {text}: {status}")?;
            }
        }
    }
    Ok(())
}

fn line(message: &Message) -> String {
    let of = &message.event;
    let datum = of.datum;
    let datum = match of.kind {
        event::LIMITED | event::UNLIMITED => format!("{datum} requests wait"),
        event::LIMIT_CHANGED if datum == 0 => "no limit".to_owned(),
        event::LIMIT_CHANGED => format!("{datum} B/s"),
        event::BACKLOG => format!("{datum} bytes wait"),
        _ => format!("tags {datum:#06x}"),
    };
    let lost = match message.lost {
        0 => String::new(),
        lost => format!(", {lost} events before it were lost"),
    };
    let (kind, class) = (message.kind_name(), escaped(&message.class));
    if of.kind == event::GRANTS {
        format!("{class} {kind}: {datum}{lost}")
    } else {
        format!("{class} {} {kind}: {datum}{lost}", message.resource_name())
    }
}

fn object(message: &Message) -> Value {
    json!({
        "kind": message.kind_name(),
        "class": message.class,
        "tag": message.event.tag,
        "resource": message.resource_name(),
        "datum": message.event.datum,
        "time_ns": message.event.time_ns,
        "number": message.event.number,
        "lost": message.lost,
    })
}

fn environment(message: &Message) -> [(&'static str, String); 6] {
    [
        ("SLUICE_EVENT", message.kind_name().to_owned()),
        ("SLUICE_CLASS", message.class.clone()),
        ("SLUICE_RESOURCE", message.resource_name().to_owned()),
        ("SLUICE_DATUM", message.event.datum.to_string()),
        ("SLUICE_TIME_NS", message.event.time_ns.to_string()),
        ("SLUICE_LOST", message.lost.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::events::Event;

    #[test]
    fn a_target_is_a_process_and_a_signal() {
        let of = |text: &str| Target::from_str(text).map(|to| (to.pid, to.offset));
        assert_eq!(of("12"), Ok((12, 0)));
        assert_eq!(of("12:SIGRTMIN"), Ok((12, 0)));
        assert_eq!(of("12:SIGRTMIN+3"), Ok((12, 3)));
        for bad in [
            "x",
            "0",
            "-1",
            "12:SIGTERM",
            "12:SIGRTMIN+x",
            "12:SIGRTMIN+99",
            "12:",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_line_says_it_in_words() {
        let mut message = Message {
            event: Event {
                number: 1,
                time_ns: 2,
                kind: event::LIMITED,
                tag: 3,
                resource: 1,
                priority: 1,
                datum: 12,
            },
            lost: 0,
            class: "a\nb".to_owned(),
        };
        assert_eq!(line(&message), "a\\nb disk.write limited: 12 requests wait");
        message.event.kind = event::GRANTS;
        message.lost = 4;
        assert_eq!(
            line(&message),
            "a\\nb grants-changed: tags 0x000c, 4 events before it were lost"
        );
    }
}
