// SPDX-License-Identifier: GPL-2.0-or-later
//! Reports of streams: a program says how many frames it has shown or sent, how many were late
//! or lost. A report is a datagram with one JSON object. The table here decides which of the
//! host's stream records holds which stream.

use super::channel_abi::{NAME_BYTES, STREAMS, StreamRecord, stream};
use super::pace::RoundTrip;
use super::tag::Tag;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

pub const MAX_REPORT_BYTES: usize = 1024;
/// A stream that says nothing for so long has ended.
pub const LASTS_NS: u64 = 10_000_000_000;
pub const MOST_FRAMES_PER_SECOND: f64 = 1e6;

/// Where the numbers are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Source {
    /// The program itself.
    #[default]
    Program = stream::SOURCE_PROGRAM,
    Vlc = stream::SOURCE_VLC,
    Ffmpeg = stream::SOURCE_FFMPEG,
    Gstreamer = stream::SOURCE_GSTREAMER,
    Socket = stream::SOURCE_SOCKET,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// 1 to 24 printable characters of ASCII; a stream is its class, its source and its name.
    pub name: String,
    /// Desired frames per second.
    pub rate: f64,
    /// Since the stream began; so are the other two.
    pub frames: u64,
    #[serde(default)]
    pub late: u64,
    #[serde(default)]
    pub lost: u64,
    #[serde(default)]
    pub source: Source,
    /// Bytes per second; 0: not known.
    #[serde(default)]
    pub pace: u64,
    /// Of its connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<RoundTrip>,
    /// The sender's own, or any if the sender is root.
    pub class: Option<String>,
}

impl Report {
    /// The error names the member, its value and the remedy.
    pub fn parse(bytes: &[u8]) -> Result<Report, String> {
        if bytes.len() > MAX_REPORT_BYTES {
            return Err(format!("a report has at most {MAX_REPORT_BYTES} bytes"));
        }
        let report: Report = serde_json::from_slice(bytes)
            .map_err(|error| format!("the report is not an object of this kind ({error})"))?;
        let is_printable = report
            .name
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if !(1..=NAME_BYTES).contains(&report.name.len()) || !is_printable {
            return Err(format!(
                "name: {:?} is not 1 to {NAME_BYTES} printable characters of ASCII",
                report.name.chars().take(2 * NAME_BYTES).collect::<String>()
            ));
        }
        if !(0.0..=MOST_FRAMES_PER_SECOND).contains(&report.rate) {
            return Err(format!(
                "rate: {} is not 0 to {MOST_FRAMES_PER_SECOND} frames per second",
                report.rate
            ));
        }
        let is_none = |one: RoundTrip| one.smoothed_us == 0 || one.least_us == 0;
        if report.round_trip.is_some_and(is_none) {
            return Err("round_trip: 0 microseconds are none: leave it out".to_owned());
        }
        Ok(report)
    }

    fn record(&self, now_ns: u64, tag: Option<Tag>) -> StreamRecord {
        let mut name = [0; NAME_BYTES];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        StreamRecord {
            tag,
            source: self.source as u8,
            rate_millihertz: (self.rate * 1000.0).round() as u32,
            frames: self.frames,
            last_ns: now_ns,
            // Both count modulo 2^32.
            late: self.late as u32,
            lost: self.lost as u32,
            pace_kib_per_second: self.pace.div_ceil(1024).try_into().unwrap_or(u32::MAX),
            name,
        }
    }
}

#[derive(Debug)]
struct Stream {
    heard_ns: u64,
    uid: u32,
    record: StreamRecord,
}

/// Which record holds which stream. Users share the records: when all are in use, a user with
/// fewer gets one of the user with the most.
#[derive(Debug, Default)]
pub struct Streams {
    places: Vec<Option<Stream>>,
}

impl Streams {
    /// The record's number and what to write there. `now_ns` is of CLOCK_MONOTONIC, as the
    /// host's record has it. `tag`: None of the class default.
    pub fn update(
        &mut self,
        now_ns: u64,
        uid: u32,
        tag: Option<Tag>,
        report: &Report,
    ) -> Result<(usize, &StreamRecord), String> {
        let mut record = report.record(now_ns, tag);
        let is_same = |place: &Option<Stream>| {
            place.as_ref().is_some_and(|known| {
                let of = |record: &StreamRecord| (record.tag, record.source, record.name);
                known.uid == uid && of(&known.record) == of(&record)
            })
        };
        let place = match self.places.iter().position(is_same) {
            Some(place) => place,
            None => self.free_place(uid)?,
        };
        match &self.places[place] {
            // The time is that of the last frame.
            Some(known) if known.record.frames == record.frames => {
                record.last_ns = known.record.last_ns;
            }
            _ => {}
        }
        let stream = self.places[place].insert(Stream {
            heard_ns: now_ns,
            uid,
            record,
        });
        Ok((place, &stream.record))
    }

    fn free_place(&mut self, uid: u32) -> Result<usize, String> {
        if let Some(place) = self.places.iter().position(Option::is_none) {
            return Ok(place);
        }
        if self.places.len() == STREAMS {
            if let Some(place) = self.place_of_greatest(uid) {
                self.places[place] = None;
                return Ok(place);
            }
            return Err(format!(
                "{STREAMS} streams report already: end one, and wait {} s",
                LASTS_NS / 1_000_000_000
            ));
        }
        self.places.push(None);
        Ok(self.places.len() - 1)
    }

    /// The place heard of longest ago of the user with the most, if `uid` has fewer even with
    /// one more.
    fn place_of_greatest(&self, uid: u32) -> Option<usize> {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for stream in self.places.iter().flatten() {
            *counts.entry(stream.uid).or_default() += 1;
        }
        let own = counts.get(&uid).copied().unwrap_or(0);
        let (greatest, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        if count <= own + 1 {
            return None;
        }
        let placed = self.places.iter().enumerate();
        let of_greatest = placed.filter_map(|(place, stream)| {
            let stream = stream.as_ref().filter(|stream| stream.uid == greatest)?;
            Some((stream.heard_ns, place))
        });
        of_greatest.min().map(|(_, place)| place)
    }

    pub fn records(&self) -> impl Iterator<Item = (usize, &StreamRecord)> {
        let placed = self.places.iter().enumerate();
        placed.filter_map(|(place, stream)| Some((place, &stream.as_ref()?.record)))
    }

    /// Forgets streams that have said nothing for long; the numbers of their records.
    pub fn expire(&mut self, now_ns: u64) -> Vec<usize> {
        let is_over = |stream: &mut Stream| now_ns.saturating_sub(stream.heard_ns) >= LASTS_NS;
        let placed = self.places.iter_mut().enumerate();
        placed
            .filter_map(|(place, stream)| stream.take_if(is_over).map(|_| place))
            .collect()
    }

    /// When the next stream is over.
    pub fn next_end_ns(&self) -> Option<u64> {
        let streams = self.places.iter().flatten();
        streams
            .map(|stream| stream.heard_ns.saturating_add(LASTS_NS))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(name: &str, frames: u64) -> Report {
        Report {
            name: name.to_owned(),
            rate: 29.97,
            frames,
            late: 1 << 32 | 5,
            lost: 6,
            source: Source::Program,
            pace: 0,
            round_trip: None,
            class: None,
        }
    }

    #[test]
    fn a_report_is_read() {
        let bytes = br#"{"name":"film","rate":25,"frames":7,"class":"video"}"#;
        let found = Report::parse(bytes).unwrap();
        assert_eq!(
            (found.rate, found.frames, found.late, found.lost),
            (25.0, 7, 0, 0)
        );
        assert_eq!(found.class.as_deref(), Some("video"));
        assert_eq!((found.source, found.pace), (Source::Program, 0));
    }

    #[test]
    fn a_report_names_its_source_and_pace() {
        let bytes = br#"{"name":"a","rate":25,"frames":7,"source":"vlc","pace":1025}"#;
        let found = Report::parse(bytes).unwrap();
        let record = found.record(0, None);
        assert_eq!(
            (record.source, record.pace_kib_per_second),
            (stream::SOURCE_VLC, 2)
        );
        let fastest = Report {
            pace: u64::MAX,
            ..found
        };
        assert_eq!(fastest.record(0, None).pace_kib_per_second, u32::MAX);
    }

    #[test]
    fn a_round_trip_of_nothing_is_refused() {
        let with = |smoothed_us, least_us| {
            let of = format!(r#"{{"smoothed_us":{smoothed_us},"least_us":{least_us}}}"#);
            let text = format!(r#"{{"name":"a","rate":1,"frames":1,"round_trip":{of}}}"#);
            Report::parse(text.as_bytes())
        };
        assert_eq!(with(9, 8).unwrap().round_trip, RoundTrip::new(9, 8));
        for (smoothed_us, least_us) in [(0, 8), (9, 0)] {
            let error = with(smoothed_us, least_us).unwrap_err();
            assert!(error.contains("round_trip"), "{error}");
        }
        assert!(with(1_u64 << 32, 1).is_err());
    }

    #[test]
    fn a_bad_report_is_refused_with_its_member() {
        let long = format!(r#"{{"name":"{}","rate":1,"frames":1}}"#, "x".repeat(25));
        for (bytes, named) in [
            (r#"{"name":"","rate":1,"frames":1}"#, "name"),
            (r#"{"name":"a\u0007","rate":1,"frames":1}"#, "name"),
            (r#"{"name":"é","rate":1,"frames":1}"#, "name"),
            (&long, "name"),
            (r#"{"name":"a","rate":-1,"frames":1}"#, "rate"),
            (r#"{"name":"a","rate":1e7,"frames":1}"#, "rate"),
            (r#"{"name":"a","rate":1}"#, "frames"),
            (r#"{"name":"a","rate":1,"frames":-1}"#, "-1"),
            (r#"{"name":"a","rate":1,"frames":1,"tag":3}"#, "tag"),
            (r#"{"name":"a","rate":1,"frames":1,"source":"x"}"#, "vlc"),
            (&" ".repeat(2000), "1024"),
        ] {
            let error = Report::parse(bytes.as_bytes()).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes: Vec<u8>) {
            let _ = Report::parse(&bytes);
        }
    }

    #[test]
    fn a_stream_keeps_its_record() {
        let mut streams = Streams::default();
        let video = Tag::new(3);
        let (place, record) = streams.update(10, 7, video, &report("a", 1)).unwrap();
        assert_eq!((place, record.rate_millihertz, record.late), (0, 29_970, 5));
        assert_eq!(streams.update(11, 7, None, &report("a", 1)).unwrap().0, 1);
        assert_eq!(streams.update(12, 7, video, &report("b", 1)).unwrap().0, 2);
        let (place, record) = streams.update(13, 7, video, &report("a", 2)).unwrap();
        assert_eq!((place, record.last_ns), (0, 13));
        let (_, record) = streams.update(14, 7, video, &report("a", 2)).unwrap();
        assert_eq!(record.last_ns, 13, "no frame came since");
        let by_vlc = Report {
            source: Source::Vlc,
            ..report("b", 1)
        };
        let (place, _) = streams.update(14, 7, video, &by_vlc).unwrap();
        assert_eq!(
            place, 3,
            "another source tells of a stream of the same name"
        );
        assert_eq!(streams.next_end_ns(), Some(11 + LASTS_NS));
        assert_eq!(
            streams.expire(11 + LASTS_NS),
            [1],
            "the others have reported since"
        );
        assert_eq!(streams.update(15, 7, None, &report("c", 1)).unwrap().0, 1);
    }

    #[test]
    fn there_are_no_more_streams_than_records() {
        let mut streams = Streams::default();
        for number in 0..STREAMS {
            let report = report(&format!("{number}"), 1);
            assert_eq!(streams.update(0, 7, None, &report).unwrap().0, number);
        }
        let error = streams.update(0, 7, None, &report("more", 1)).unwrap_err();
        assert!(error.contains("64 streams"), "{error}");
        assert!(streams.update(0, 7, None, &report("3", 2)).is_ok());
        assert_eq!(streams.records().count(), STREAMS);
    }

    #[test]
    fn a_user_cannot_take_all_records_nor_write_anothers() {
        let (mine, others) = (1000, 1001);
        let mut streams = Streams::default();
        for number in 0..STREAMS {
            let report = report(&format!("{number}"), 1);
            streams.update(number as u64, mine, None, &report).unwrap();
        }
        let film = report("film", 1);
        for (count, name) in ["film", "3", "4"].iter().enumerate() {
            let (place, _) = streams.update(100, others, None, &report(name, 1)).unwrap();
            assert_eq!(place, count, "that of which nothing was heard for longest");
        }
        let error = streams.update(101, mine, None, &film).unwrap_err();
        assert!(error.contains("64 streams"), "{error}");
        assert_eq!(streams.records().count(), STREAMS);
        for number in 0..STREAMS {
            let name = report(&format!("other {number}"), 1);
            let _ = streams.update(102, others, None, &name);
        }
        let of = |uid| {
            streams
                .places
                .iter()
                .flatten()
                .filter(move |s| s.uid == uid)
        };
        assert_eq!((of(mine).count(), of(others).count()), (32, 32));
    }
}
