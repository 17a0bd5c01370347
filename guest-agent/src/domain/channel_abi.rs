// SPDX-License-Identifier: GPL-2.0-or-later
//! Numbers and layouts of the channel (docs/specs/channel.md). The device's own are in
//! `channel-abi.h`; a test below compares both. All integers are little-endian.

use super::tag::Tag;

pub const VENDOR: u16 = 0x1af4;
pub const DEVICE: u16 = 0x10fc;
pub const SUBSYSTEM: u16 = 0x5c1c;
/// `SLCH`
pub const MAGIC: u32 = 0x4843_4c53;
pub const VERSION: u32 = 1;

pub const REGISTER_BYTES: usize = 4096;
pub const GUEST_BYTES: usize = 262_144;
pub const HOST_BYTES: usize = 65_536;

pub const CALL_SLOTS: u32 = 64;
pub const RING_CALLS: u32 = 256;
pub const CALL_BYTES: usize = 64;
pub const ARGUMENTS: usize = 6;
pub const STREAMS: usize = 64;
pub const STREAM_BYTES: usize = 64;
pub const SERVERS: usize = 64;
pub const SERVER_BYTES: usize = 32;
pub const EVENTS: usize = 256;
pub const EVENT_BYTES: usize = 32;
pub const PRIORITIES: usize = 4;
pub const SERVICES: usize = 16;
pub const SERVICE_BYTES: usize = 32;
pub const RESULT_BYTES: usize = 16;
pub const NAME_BYTES: usize = 24;
pub const CLASS_NAME_BYTES: usize = 32;
pub const CLASS_BYTES: usize = 64;
pub const TAGS: usize = 16;
pub const RESOURCES: usize = 4;
pub const PORT_MAP_BYTES: usize = 131_072;
/// An entry of the port map is this and the tag.
pub const PORT_MAP_ENTRY: u8 = 0x80;

/// Names of resources by their numbers.
pub const RESOURCE_NAMES: [&str; RESOURCES] =
    ["disk.read", "disk.write", "net.inbound", "net.outbound"];

pub mod register {
    pub const MAGIC: usize = 0x00;
    pub const VERSION: usize = 0x04;
    pub const DRIVER: usize = 0x08;
    pub const PORT_MAP: usize = 0x0c;
    pub const CALL: usize = 0x10;
    pub const INTERRUPT: usize = 0x14;
    pub const EVENTS: usize = 0x18;
    pub const CALLS_MAX: usize = 0x1c;
}

/// Offsets in the guest's pages.
pub mod guest {
    pub const RING_HEAD: usize = 0;
    /// A word of 64 bits for each priority.
    pub const PATTERN: usize = 0x40;
    pub const CALLS: usize = 0x1000;
    pub const RING: usize = 0x2000;
    pub const STREAMS: usize = 0x6000;
    pub const SERVERS: usize = 0x7000;
    pub const PORT_MAP: usize = 0x20000;
}

/// Offsets in a call.
pub mod call {
    pub const SERVICE: usize = 0;
    pub const OPERATION: usize = 4;
    /// Fast: sequence. Deferred: kind.
    pub const KEY: usize = 8;
    pub const DELAY_MS: usize = 12;
    pub const ARGUMENTS: usize = 16;
}

/// Offsets in a stream record.
pub mod stream {
    pub const SEQ: usize = 0;
    pub const USED: usize = 4;
    pub const TAG: usize = 5;
    pub const SOURCE: usize = 6;
    pub const RATE: usize = 8;
    pub const LATE: usize = 12;
    pub const FRAMES: usize = 16;
    pub const LAST_NS: usize = 24;
    pub const LOST: usize = 32;
    pub const PACE: usize = 36;
    pub const NAME: usize = 40;

    pub const SOURCE_PROGRAM: u8 = 1;
    pub const SOURCE_VLC: u8 = 2;
    pub const SOURCE_FFMPEG: u8 = 3;
    pub const SOURCE_GSTREAMER: u8 = 4;
    pub const SOURCE_SOCKET: u8 = 5;
}

/// Offsets in a server record.
pub mod server {
    pub const SEQ: usize = 0;
    pub const USED: usize = 4;
    pub const TAG: usize = 5;
    pub const PORT: usize = 6;
    pub const QUEUED: usize = 8;
    pub const QUEUE_MAX: usize = 12;
    pub const OPEN: usize = 16;
    pub const OPEN_MAX: usize = 20;
}

/// Offsets in the host's pages.
pub mod host {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const RING_TAIL: usize = 12;
    pub const EPOCH: usize = 16;
    pub const EVENT_HEAD: usize = 24;
    pub const HEARTBEAT_NS: usize = 32;
    pub const CALLS: usize = 40;
    pub const CALLS_REFUSED: usize = 48;
    pub const DEFERRED: usize = 56;
    pub const DEFERRED_REFUSED: usize = 64;
    pub const DEFERRED_REPLACED: usize = 72;
    pub const GRANTED: usize = 80;
    pub const SERVICES: usize = 0x400;
    pub const RESULTS: usize = 0x1000;
    pub const EVENTS: usize = 0x2000;
    pub const CLASS_NAMES: usize = 0x4000;
    pub const CLASSES: usize = 0x5000;
}

pub const HEADER_MAGIC: &[u8; 8] = b"SLUICECH";

/// Offsets in an entry of the list of services.
pub mod service {
    pub const NAME: usize = 0;
    pub const NUMBER: usize = 24;
    pub const VERSION: usize = 28;

    pub const CHANNEL: u32 = 1;
    pub const PING: u32 = 0;
    pub const EVENTS: u32 = 3;
    pub const SUBSCRIBE: u32 = 0;
    pub const ECHO: u32 = 1;
}

/// Offsets in a result.
pub mod result {
    pub const SEQUENCE: usize = 0;
    pub const STATUS: usize = 4;
    pub const VALUE: usize = 8;
}

/// Offsets in an event, and its kinds.
pub mod event {
    pub const NUMBER: usize = 0;
    pub const TIME_NS: usize = 8;
    pub const KIND: usize = 16;
    pub const TAG: usize = 17;
    pub const RESOURCE: usize = 18;
    pub const PRIORITY: usize = 19;
    pub const DATUM: usize = 24;

    pub const LIMITED: u8 = 1;
    pub const UNLIMITED: u8 = 2;
    pub const LIMIT_CHANGED: u8 = 3;
    pub const BACKLOG: u8 = 4;
    pub const GRANTS: u8 = 5;
    /// The answer to a ping, which is no news to anybody else.
    pub const ECHO: u8 = 6;
}

/// Offsets in a class entry.
pub mod class {
    pub const SEQ: usize = 0;
    pub const USED: usize = 4;
    pub const PRIORITY: usize = 5;
    pub const LIMITED: usize = 6;
    pub const BYTES_PER_SECOND: usize = 8;
    pub const OPERATIONS_PER_SECOND: usize = 16;
    pub const TOKENS_BYTES: usize = 24;
    pub const BACKLOG_BYTES: usize = 40;
    pub const HELD_NS: usize = 48;
    pub const BYTES: usize = 56;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ok,
    /// The port is to be asked.
    Slow,
    /// One call too many in this second.
    Busy,
    Unknown,
    Denied,
    Bad,
    /// A number of a later version.
    Other(u32),
}

impl Status {
    pub fn of(number: u32) -> Status {
        match number {
            0 => Status::Ok,
            1 => Status::Slow,
            2 => Status::Busy,
            3 => Status::Unknown,
            4 => Status::Denied,
            5 => Status::Bad,
            other => Status::Other(other),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Call {
    pub service: u32,
    pub operation: u32,
    pub key: u32,
    pub delay_ms: u32,
    pub arguments: [u64; ARGUMENTS],
}

/// A stream's account of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRecord {
    /// None: the class default.
    pub tag: Option<Tag>,
    pub source: u8,
    /// Desired frames per second, in 1/1000.
    pub rate_millihertz: u32,
    pub frames: u64,
    /// Of CLOCK_MONOTONIC.
    pub last_ns: u64,
    pub late: u32,
    pub lost: u32,
    /// 0: not known.
    pub pace_kib_per_second: u32,
    pub name: [u8; NAME_BYTES],
}

/// A class's numbers of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassEntry {
    pub is_used: bool,
    pub priority: u8,
    pub is_limited: bool,
    /// 0: none.
    pub bytes_per_second: u64,
    /// 0: none.
    pub operations_per_second: u64,
    pub tokens_bytes: i64,
    pub backlog_bytes: u64,
    pub held_ns: u64,
    pub bytes: u64,
}

/// Text of the host's, up to its first NUL.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    /// (number here, expression in C)
    const PAIRS: &[(usize, &str)] = &[
        (VENDOR as usize, "SLUICE_CHANNEL_VENDOR_ID"),
        (DEVICE as usize, "SLUICE_CHANNEL_DEVICE_ID"),
        (SUBSYSTEM as usize, "SLUICE_CHANNEL_SUBSYSTEM_ID"),
        (MAGIC as usize, "SLUICE_CHANNEL_MAGIC"),
        (VERSION as usize, "SLUICE_CHANNEL_VERSION"),
        (REGISTER_BYTES, "SLUICE_CHANNEL_REGISTER_BYTES"),
        (GUEST_BYTES, "sizeof(SluiceChannelGuest)"),
        (HOST_BYTES, "sizeof(SluiceChannelHost)"),
        (CALL_SLOTS as usize, "SLUICE_CHANNEL_SLOTS"),
        (RING_CALLS as usize, "SLUICE_CHANNEL_RING"),
        (CALL_BYTES, "sizeof(SluiceChannelCall)"),
        (ARGUMENTS, "SLUICE_CHANNEL_ARGUMENTS"),
        (STREAMS, "SLUICE_CHANNEL_STREAMS"),
        (STREAM_BYTES, "sizeof(SluiceChannelStream)"),
        (SERVERS, "SLUICE_CHANNEL_SERVERS"),
        (SERVER_BYTES, "sizeof(SluiceChannelServer)"),
        (EVENTS, "SLUICE_CHANNEL_EVENTS"),
        (EVENT_BYTES, "sizeof(SluiceChannelEvent)"),
        (PRIORITIES, "SLUICE_CHANNEL_PRIORITIES"),
        (register::INTERRUPT, "SLUICE_CHANNEL_REG_INTERRUPT"),
        (register::EVENTS, "SLUICE_CHANNEL_REG_EVENTS"),
        (guest::PATTERN, "offsetof(SluiceChannelGuest, pattern)"),
        (
            host::EVENT_HEAD,
            "offsetof(SluiceChannelHeader, event_head)",
        ),
        (host::EVENTS, "offsetof(SluiceChannelHost, events)"),
        (service::EVENTS as usize, "SLUICE_SERVICE_EVENTS"),
        (service::SUBSCRIBE as usize, "SLUICE_EVENTS_SUBSCRIBE"),
        (event::NUMBER, "offsetof(SluiceChannelEvent, number)"),
        (event::TIME_NS, "offsetof(SluiceChannelEvent, time_ns)"),
        (event::KIND, "offsetof(SluiceChannelEvent, kind)"),
        (event::TAG, "offsetof(SluiceChannelEvent, tag)"),
        (event::RESOURCE, "offsetof(SluiceChannelEvent, resource)"),
        (event::PRIORITY, "offsetof(SluiceChannelEvent, priority)"),
        (event::DATUM, "offsetof(SluiceChannelEvent, datum)"),
        (event::LIMITED as usize, "SLUICE_EVENT_LIMITED"),
        (event::UNLIMITED as usize, "SLUICE_EVENT_UNLIMITED"),
        (event::LIMIT_CHANGED as usize, "SLUICE_EVENT_LIMIT_CHANGED"),
        (event::BACKLOG as usize, "SLUICE_EVENT_BACKLOG"),
        (event::GRANTS as usize, "SLUICE_EVENT_GRANTS"),
        (event::ECHO as usize, "SLUICE_EVENT_ECHO"),
        (service::ECHO as usize, "SLUICE_EVENTS_ECHO"),
        (SERVICES, "SLUICE_CHANNEL_SERVICES"),
        (SERVICE_BYTES, "sizeof(SluiceChannelService)"),
        (RESULT_BYTES, "sizeof(SluiceChannelResult)"),
        (NAME_BYTES, "SLUICE_CHANNEL_NAME_BYTES"),
        (CLASS_NAME_BYTES, "SLUICE_CHANNEL_CLASS_NAME_BYTES"),
        (CLASS_BYTES, "sizeof(SluiceChannelClass)"),
        (TAGS, "SLUICE_CHANNEL_TAGS"),
        (RESOURCES, "SLUICE_CHANNEL_RESOURCES"),
        (PORT_MAP_BYTES, "SLUICE_CHANNEL_PORT_MAP_BYTES"),
        (PORT_MAP_ENTRY as usize, "SLUICE_CHANNEL_PORT_MAP_ENTRY"),
        (register::MAGIC, "SLUICE_CHANNEL_REG_MAGIC"),
        (register::VERSION, "SLUICE_CHANNEL_REG_VERSION"),
        (register::DRIVER, "SLUICE_CHANNEL_REG_DRIVER"),
        (register::PORT_MAP, "SLUICE_CHANNEL_REG_PORT_MAP"),
        (register::CALL, "SLUICE_CHANNEL_REG_CALL"),
        (register::CALLS_MAX, "SLUICE_CHANNEL_REG_CALLS_MAX"),
        (guest::RING_HEAD, "offsetof(SluiceChannelGuest, ring_head)"),
        (guest::CALLS, "offsetof(SluiceChannelGuest, calls)"),
        (guest::RING, "offsetof(SluiceChannelGuest, ring)"),
        (guest::STREAMS, "offsetof(SluiceChannelGuest, streams)"),
        (guest::SERVERS, "offsetof(SluiceChannelGuest, servers)"),
        (guest::PORT_MAP, "offsetof(SluiceChannelGuest, port_map)"),
        (call::SERVICE, "offsetof(SluiceChannelCall, service)"),
        (call::OPERATION, "offsetof(SluiceChannelCall, operation)"),
        (call::KEY, "offsetof(SluiceChannelCall, key)"),
        (call::DELAY_MS, "offsetof(SluiceChannelCall, delay_ms)"),
        (call::ARGUMENTS, "offsetof(SluiceChannelCall, arguments)"),
        (stream::SEQ, "offsetof(SluiceChannelStream, seq)"),
        (stream::USED, "offsetof(SluiceChannelStream, used)"),
        (stream::TAG, "offsetof(SluiceChannelStream, tag)"),
        (stream::SOURCE, "offsetof(SluiceChannelStream, source)"),
        (
            stream::RATE,
            "offsetof(SluiceChannelStream, rate_millihertz)",
        ),
        (stream::LATE, "offsetof(SluiceChannelStream, late)"),
        (stream::FRAMES, "offsetof(SluiceChannelStream, frames)"),
        (stream::LAST_NS, "offsetof(SluiceChannelStream, last_ns)"),
        (stream::LOST, "offsetof(SluiceChannelStream, lost)"),
        (
            stream::PACE,
            "offsetof(SluiceChannelStream, pace_kib_per_second)",
        ),
        (stream::NAME, "offsetof(SluiceChannelStream, name)"),
        (stream::SOURCE_PROGRAM as usize, "SLUICE_STREAM_PROGRAM"),
        (stream::SOURCE_VLC as usize, "SLUICE_STREAM_VLC"),
        (stream::SOURCE_FFMPEG as usize, "SLUICE_STREAM_FFMPEG"),
        (stream::SOURCE_GSTREAMER as usize, "SLUICE_STREAM_GSTREAMER"),
        (stream::SOURCE_SOCKET as usize, "SLUICE_STREAM_SOCKET"),
        (server::SEQ, "offsetof(SluiceChannelServer, seq)"),
        (server::USED, "offsetof(SluiceChannelServer, used)"),
        (server::TAG, "offsetof(SluiceChannelServer, tag)"),
        (server::PORT, "offsetof(SluiceChannelServer, port)"),
        (server::QUEUED, "offsetof(SluiceChannelServer, queued)"),
        (
            server::QUEUE_MAX,
            "offsetof(SluiceChannelServer, queue_max)",
        ),
        (server::OPEN, "offsetof(SluiceChannelServer, open)"),
        (server::OPEN_MAX, "offsetof(SluiceChannelServer, open_max)"),
        (host::MAGIC, "offsetof(SluiceChannelHeader, magic)"),
        (host::VERSION, "offsetof(SluiceChannelHeader, version)"),
        (host::RING_TAIL, "offsetof(SluiceChannelHeader, ring_tail)"),
        (host::EPOCH, "offsetof(SluiceChannelHeader, epoch)"),
        (
            host::HEARTBEAT_NS,
            "offsetof(SluiceChannelHeader, heartbeat_ns)",
        ),
        (host::CALLS, "offsetof(SluiceChannelHeader, calls)"),
        (
            host::CALLS_REFUSED,
            "offsetof(SluiceChannelHeader, calls_refused)",
        ),
        (host::DEFERRED, "offsetof(SluiceChannelHeader, deferred)"),
        (
            host::DEFERRED_REFUSED,
            "offsetof(SluiceChannelHeader, deferred_refused)",
        ),
        (
            host::DEFERRED_REPLACED,
            "offsetof(SluiceChannelHeader, deferred_replaced)",
        ),
        (host::GRANTED, "offsetof(SluiceChannelHeader, granted)"),
        (host::SERVICES, "offsetof(SluiceChannelHost, services)"),
        (host::RESULTS, "offsetof(SluiceChannelHost, results)"),
        (
            host::CLASS_NAMES,
            "offsetof(SluiceChannelHost, class_names)",
        ),
        (host::CLASSES, "offsetof(SluiceChannelHost, classes)"),
        (service::NAME, "offsetof(SluiceChannelService, name)"),
        (service::NUMBER, "offsetof(SluiceChannelService, number)"),
        (service::VERSION, "offsetof(SluiceChannelService, version)"),
        (service::CHANNEL as usize, "SLUICE_SERVICE_CHANNEL"),
        (service::PING as usize, "SLUICE_CHANNEL_PING"),
        (result::SEQUENCE, "offsetof(SluiceChannelResult, sequence)"),
        (result::STATUS, "offsetof(SluiceChannelResult, status)"),
        (result::VALUE, "offsetof(SluiceChannelResult, value)"),
        (class::SEQ, "offsetof(SluiceChannelClass, seq)"),
        (class::USED, "offsetof(SluiceChannelClass, used)"),
        (class::PRIORITY, "offsetof(SluiceChannelClass, priority)"),
        (class::LIMITED, "offsetof(SluiceChannelClass, limited)"),
        (
            class::BYTES_PER_SECOND,
            "offsetof(SluiceChannelClass, bytes_per_second)",
        ),
        (
            class::OPERATIONS_PER_SECOND,
            "offsetof(SluiceChannelClass, operations_per_second)",
        ),
        (
            class::TOKENS_BYTES,
            "offsetof(SluiceChannelClass, tokens_bytes)",
        ),
        (
            class::BACKLOG_BYTES,
            "offsetof(SluiceChannelClass, backlog_bytes)",
        ),
        (class::HELD_NS, "offsetof(SluiceChannelClass, held_ns)"),
        (class::BYTES, "offsetof(SluiceChannelClass, bytes)"),
    ];
    const STATUSES: &[(Status, &str)] = &[
        (Status::Ok, "SLUICE_CALL_OK"),
        (Status::Slow, "SLUICE_CALL_SLOW"),
        (Status::Busy, "SLUICE_CALL_BUSY"),
        (Status::Unknown, "SLUICE_CALL_UNKNOWN"),
        (Status::Denied, "SLUICE_CALL_DENIED"),
        (Status::Bad, "SLUICE_CALL_BAD"),
    ];

    /// The values that a C compiler finds for these expressions.
    fn in_c(expressions: impl Iterator<Item = &'static str>) -> Vec<usize> {
        let includes = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../qemu-patches/src/include/sluice"
        );
        let mut source = String::from(
            "#include <stdio.h>\n#include \"channel-abi.h\"\n\
             _Static_assert(sizeof(SLUICE_CHANNEL_HEADER_MAGIC) == 9, \"\");\n\
             int main(void) {\n",
        );
        for expression in expressions {
            writeln!(source, "printf(\"%llu\\n\", 0ULL + {expression});").unwrap();
        }
        source.push_str("return 0;\n}\n");
        let program = std::env::temp_dir().join(format!("sluice-abi-{}", std::process::id()));
        let mut compiler = Command::new("cc")
            .args(["-x", "c", "-I", includes, "-", "-o"])
            .arg(&program)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = compiler.stdin.take().unwrap();
        input.write_all(source.as_bytes()).unwrap();
        drop(input);
        assert!(compiler.wait().unwrap().success());
        let output = Command::new(&program).output().unwrap();
        std::fs::remove_file(&program).unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect()
    }

    #[test]
    fn numbers_are_those_of_the_device() {
        let expressions = PAIRS.iter().map(|pair| pair.1);
        let statuses = STATUSES.iter().map(|pair| pair.1);
        let found = in_c(expressions.chain(statuses));
        let (numbers, statuses) = found.split_at(PAIRS.len());
        for ((here, expression), there) in PAIRS.iter().zip(numbers) {
            assert_eq!(here, there, "{expression}");
        }
        assert_eq!(statuses.len(), STATUSES.len());
        for ((here, expression), there) in STATUSES.iter().zip(statuses) {
            assert_eq!(*here, Status::of(*there as u32), "{expression}");
        }
    }

    #[test]
    fn a_text_ends_at_its_first_zero() {
        assert_eq!(text(b"video\0junk"), "video");
        assert_eq!(text(b"\xffx"), "\u{fffd}x");
        assert_eq!(text(b""), "");
    }
}
