// SPDX-License-Identifier: GPL-2.0-or-later
//! Takes reports of streams from programs of this guest and writes them into the host's
//! records. A program may report for its own class only. Reports are taken in batches with
//! pauses, so that a program that floods costs no more than a little.

use crate::adapters::channel::Device;
use crate::adapters::clock::monotonic_ns;
use crate::adapters::report::{Received, ReportSocket};
use crate::domain::pace::RoundTrip;
use crate::domain::report::{MAX_REPORT_BYTES, Report, Streams};
use crate::domain::shape::Message;
use crate::services::agent::Agent;
use crate::services::follow::Follower;
use crate::services::log::{Level, escaped};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

const BATCH: usize = 32;
/// After a batch. At most 3,200 reports a second are taken; the kernel keeps senders waiting.
const REST_NS: u64 = 10_000_000;
/// While descriptors that a sender passed do not close.
const STUCK_NS: u64 = 1_000_000_000;

/// Between two messages to the host on streams' round trips.
const TELL_NS: u64 = 100_000_000;

pub struct Reports {
    socket: Option<ReportSocket>,
    streams: Streams,
    /// Until then none is taken.
    rest_until_ns: u64,
    /// Of the device that has the records.
    generation: u64,
    /// By record, the words on round trips that the host has not heard.
    untold: BTreeMap<usize, (u8, RoundTrip)>,
    told_ns: u64,
    /// The host wants them.
    is_watched: bool,
}

impl Reports {
    pub fn open(path: &Path, now_ns: u64, agent: &mut Agent) -> Reports {
        let socket = ReportSocket::bind(path)
            .inspect_err(|error| {
                let text = format!(
                    "cannot open {} ({error}): programs cannot report their streams",
                    path.display()
                );
                agent.log.add(now_ns, Level::Warning, text);
            })
            .ok();
        Reports {
            socket,
            streams: Streams::default(),
            rest_until_ns: 0,
            generation: 0,
            untold: BTreeMap::new(),
            told_ns: 0,
            is_watched: false,
        }
    }

    /// To wait for, unless it is resting.
    pub fn waits_for(&self, now_ns: u64) -> Option<BorrowedFd<'_>> {
        let socket = self.socket.as_ref()?;
        (now_ns >= self.rest_until_ns).then(|| socket.as_fd())
    }

    /// `can_tell`: the host takes messages now. Else a message that is due is no reason to wake.
    pub fn next_event_ns(&self, now_ns: u64, can_tell: bool) -> u64 {
        let rest_ns = Some(self.rest_until_ns).filter(|until_ns| *until_ns > now_ns);
        // Streams are timed by another clock.
        let end_ns = self
            .streams
            .next_end_ns()
            .map(|end_ns| now_ns.saturating_add(end_ns.saturating_sub(monotonic_ns())));
        let is_due = can_tell && self.is_watched && !self.untold.is_empty();
        let tell_ns = is_due.then(|| self.told_ns.saturating_add(TELL_NS));
        let all = rest_ns.into_iter().chain(end_ns).chain(tell_ns);
        all.min().unwrap_or(u64::MAX)
    }

    /// Whether the host wants to hear of round trips; those of before it did are old.
    pub fn watch(&mut self, is_watched: bool) {
        if is_watched && !self.is_watched {
            self.untold.clear();
        }
        self.is_watched = is_watched;
    }

    /// The host's message on round trips, if it is time for one.
    pub fn message(&mut self, now_ns: u64) -> Option<Value> {
        let is_due = now_ns >= self.told_ns.saturating_add(TELL_NS);
        if !self.is_watched || !is_due || self.untold.is_empty() {
            return None;
        }
        self.told_ns = now_ns;
        let told = std::mem::take(&mut self.untold);
        let rows = told.into_iter().map(|(record, (tag, one))| {
            json!({
                "record": record,
                "tag": tag,
                "round_trip_us": one.smoothed_us,
                "least_us": one.least_us,
            })
        });
        Some(json!({ "streams": rows.collect::<Vec<_>>() }))
    }

    /// Takes a batch of reports.
    pub fn serve(&mut self, now_ns: u64, agent: &mut Agent, follower: &mut Follower) {
        self.follow_device(agent);
        for place in self.streams.expire(monotonic_ns()) {
            self.untold.remove(&place);
            if let Ok((device, _)) = agent.device() {
                device.clear_stream(place);
            }
        }
        if now_ns < self.rest_until_ns {
            return;
        }
        for _ in 0..BATCH {
            if self.socket.as_ref().is_some_and(ReportSocket::is_stuck) {
                self.rest_until_ns = now_ns.saturating_add(STUCK_NS);
                return;
            }
            let received = match self.socket.as_ref().map(ReportSocket::receive) {
                Some(Ok(Some(received))) => received,
                Some(Ok(None)) | None => return,
                Some(Err(error)) => {
                    let text = format!("cannot receive reports ({error})");
                    agent.log.add(now_ns, Level::Warning, text);
                    break;
                }
            };
            let answer = match self.take(now_ns, &received, agent, follower) {
                Ok(answer) => answer,
                Err(error) => json!({"error": escaped(&error)}),
            };
            received.answer(&answer.to_string());
        }
        self.rest_until_ns = now_ns.saturating_add(REST_NS);
    }

    /// Of a report, the number of the record that has it now.
    fn take(
        &mut self,
        now_ns: u64,
        received: &Received,
        agent: &mut Agent,
        follower: &mut Follower,
    ) -> Result<Value, String> {
        let sender = (received.pid, received.uid);
        if received.bytes.len() <= MAX_REPORT_BYTES {
            if let Some(message) = Message::parse(&received.bytes) {
                // Before the answer, after which a command may start children at once. Others
                // are refused, and cost no more than that.
                if received.uid == 0 {
                    follower.tend(now_ns, true, &mut agent.log);
                }
                return agent.shape(now_ns, sender, message.shape);
            }
        }
        let report = Report::parse(&received.bytes)?;
        let tag = agent.class_of_sender(now_ns, sender, report.class.as_deref())?;
        let (place, record) = self
            .streams
            .update(monotonic_ns(), received.uid, tag, &report)?;
        let (device, _) = agent.device()?;
        device.write_stream(place, record);
        match report.round_trip {
            Some(one) => self.untold.insert(place, (tag.map_or(0, u8::from), one)),
            None => self.untold.remove(&place),
        };
        Ok(json!({ "record": place }))
    }

    /// Another device, or a reset one, has no records yet.
    fn follow_device(&mut self, agent: &Agent) {
        let Ok((device, generation)) = agent.device() else {
            return;
        };
        if generation != self.generation {
            self.generation = generation;
            write_all(device, &self.streams);
        }
    }
}

/// And clears records of a predecessor.
fn write_all(device: &Device, streams: &Streams) {
    for place in device.used_streams() {
        device.clear_stream(place);
    }
    for (place, record) in streams.records() {
        device.write_stream(place, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_untold() -> Reports {
        let one = RoundTrip::new(90_000, 80_000).unwrap();
        Reports {
            socket: None,
            streams: Streams::default(),
            rest_until_ns: 0,
            generation: 0,
            untold: BTreeMap::from([(0, (3, one))]),
            told_ns: 0,
            is_watched: true,
        }
    }

    #[test]
    fn a_host_that_does_not_read_keeps_nobody_awake() {
        let reports = with_untold();
        let now_ns = 10 * TELL_NS;
        assert_eq!(reports.next_event_ns(now_ns, true), TELL_NS);
        assert_eq!(reports.next_event_ns(now_ns, false), u64::MAX);
    }

    #[test]
    fn a_host_that_begins_to_watch_hears_no_old_words() {
        let mut reports = with_untold();
        reports.watch(true);
        assert!(reports.message(TELL_NS).is_some());
        let mut reports = with_untold();
        reports.watch(false);
        assert_eq!(reports.next_event_ns(TELL_NS, true), u64::MAX);
        reports.watch(true);
        assert_eq!(reports.message(TELL_NS), None);
    }
}
