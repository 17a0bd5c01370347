// SPDX-License-Identifier: GPL-2.0-or-later
//! The channel as people see it: its state, and the times of its calls. Both look at the device
//! beside an agent that runs; a state is read without a change.

use crate::adapters::channel::{self, Device};
use crate::adapters::clock::Clock;
use crate::domain::channel_abi::{
    CALL_SLOTS, Call, PORT_MAP_BYTES, PORT_MAP_ENTRY, RESOURCE_NAMES, Status, TAGS, VERSION,
    service,
};
use crate::domain::spread::Spread;
use crate::services::log::escaped;
use crate::services::ping::{Messages, Upcalls, ping_port, ping_upcall};
use serde::Serialize;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Of the last slot: the agent uses the first.
const SLOT: u32 = CALL_SLOTS - 1;
/// An entry of the ring is taken within 250 ms by a host that is not busy.
const TAKEN_WITHIN_NS: u64 = 10_000_000_000;
/// Deferred calls written one after the other: an eighth of the ring.
const BURST: u64 = 32;
const LOOK_EVERY: Duration = Duration::from_micros(100);
const BUSY_REST: Duration = Duration::from_millis(1);
/// Calls that were refused one after the other before a ping gives up.
const MOST_BUSY: u64 = 10_000;

#[derive(Debug, Serialize)]
pub struct State {
    device: String,
    version: u32,
    /// 0: no driver, so nothing is in force.
    driver: u32,
    port_map: bool,
    tcp_ports: usize,
    udp_ports: usize,
    epoch: u64,
    calls: u64,
    calls_refused: u64,
    calls_max_per_second: u32,
    deferred: u64,
    deferred_refused: u64,
    deferred_replaced: u64,
    services: Vec<Service>,
    classes: Vec<Class>,
}

#[derive(Debug, Serialize)]
struct Service {
    name: String,
    number: u32,
    version: u32,
}

#[derive(Debug, Serialize)]
struct Class {
    name: String,
    tag: usize,
    resource: &'static str,
    priority: u8,
    limited: bool,
    /// Null: no limit.
    bytes_per_second: Option<u64>,
    operations_per_second: Option<u64>,
    /// Null without a limit.
    tokens_bytes: Option<i64>,
    backlog_bytes: u64,
    held_ns: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct Pings {
    fast: Fast,
    deferred: Deferred,
    #[serde(skip_serializing_if = "Option::is_none")]
    upcall: Option<Upcalls>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<Messages>,
}

/// Pings beside those of calls.
#[derive(Debug, Default)]
pub struct More<'a> {
    pub upcall: bool,
    /// A port whose host's end sends back all that it gets.
    pub port: Option<&'a Path>,
}

#[derive(Debug, Serialize)]
struct Fast {
    count: u64,
    /// Calls beyond the host's limit, each tried again a millisecond later.
    busy: u64,
    call: Option<Spread>,
    /// Accesses to registers: exits, those of refused calls too.
    register_accesses: u64,
}

#[derive(Debug, Serialize)]
struct Deferred {
    count: u64,
    /// Of one call, in a burst: reads of the clock cost more than a call.
    put: Option<Spread>,
    /// From the write to the host's having taken it, looked at every 0.1 ms.
    taken: Option<Spread>,
    register_accesses: u64,
}

/// The device below `root`; the error says why there is none.
pub fn open(root: &Path) -> Result<Device, String> {
    let folder = channel::find(root).ok_or_else(|| {
        format!(
            "no device sluice-channel in {}: {}",
            root.display(),
            channel::REMEDY
        )
    })?;
    Device::open(&folder)
}

pub fn state(device: &Device) -> State {
    let header = device.header();
    let map = device.port_map();
    let (tcp, udp) = map.split_at(PORT_MAP_BYTES / 2);
    let count = |part: &[u8]| part.iter().filter(|byte| **byte >= PORT_MAP_ENTRY).count();
    let services = device.services().into_iter();
    State {
        device: device.address.clone(),
        version: device.version(),
        driver: device.driver(),
        port_map: device.has_port_map(),
        tcp_ports: count(tcp),
        udp_ports: count(udp),
        epoch: header.epoch,
        calls: header.calls,
        calls_refused: header.calls_refused,
        calls_max_per_second: device.calls_max(),
        deferred: header.deferred,
        deferred_refused: header.deferred_refused,
        deferred_replaced: header.deferred_replaced,
        services: services
            .map(|(name, number, version)| Service {
                name,
                number,
                version,
            })
            .collect(),
        classes: (0..TAGS).flat_map(|tag| classes(device, tag)).collect(),
    }
}

fn classes(device: &Device, tag: usize) -> Vec<Class> {
    let resources = RESOURCE_NAMES.iter().enumerate();
    resources
        .filter_map(|(number, resource)| {
            let entry = device.class_entry(tag, number)?;
            entry.is_used.then(|| Class {
                name: device.class_name(tag),
                tag,
                resource,
                priority: entry.priority,
                limited: entry.is_limited,
                bytes_per_second: Some(entry.bytes_per_second).filter(|limit| *limit > 0),
                operations_per_second: Some(entry.operations_per_second).filter(|limit| *limit > 0),
                tokens_bytes: Some(entry.tokens_bytes).filter(|tokens| *tokens != i64::MAX),
                backlog_bytes: entry.backlog_bytes,
                held_ns: entry.held_ns,
                bytes: entry.bytes,
            })
        })
        .collect()
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let map = match (self.driver, self.port_map) {
            (0, _) => "no driver: the agent does not run".to_owned(),
            (_, false) => "port map not in force".to_owned(),
            (_, true) => format!(
                "port map in force, {} ports of TCP and {} of UDP",
                self.tcp_ports, self.udp_ports
            ),
        };
        writeln!(
            f,
            "device     {}, version {}; {map}",
            self.device, self.version
        )?;
        writeln!(
            f,
            "calls      {} and {} refused, at most {} per second",
            self.calls, self.calls_refused, self.calls_max_per_second
        )?;
        writeln!(
            f,
            "deferred   {}, {} refused, {} replaced",
            self.deferred, self.deferred_refused, self.deferred_replaced
        )?;
        let names: Vec<String> = self
            .services
            .iter()
            .map(|service| format!("{} {}", escaped(&service.name), service.version))
            .collect();
        writeln!(f, "services   {}", names.join(", "))?;
        if self.classes.is_empty() {
            return writeln!(f, "classes    none is granted");
        }
        writeln!(
            f,
            "\n{:<20} {:>3} {:<12} {:>4} {:>14} {:>12} {:>12} {:>10}",
            "CLASS", "TAG", "RESOURCE", "PRIO", "LIMIT B/s", "TOKENS B", "BACKLOG B", "HELD ms"
        )?;
        for class in &self.classes {
            let limit = class
                .bytes_per_second
                .map_or("none".to_owned(), |limit| limit.to_string());
            let tokens = class
                .tokens_bytes
                .map_or("-".to_owned(), |tokens| tokens.to_string());
            writeln!(
                f,
                "{:<20} {:>3} {:<12} {:>4} {:>14} {:>12} {:>12} {:>10}",
                escaped(&class.name),
                class.tag,
                class.resource,
                class.priority,
                limit,
                tokens,
                class.backlog_bytes,
                class.held_ns / 1_000_000
            )?;
        }
        Ok(())
    }
}

/// Times `count` calls of each kind. A driver is announced for their time if there is none.
pub fn ping(device: &Device, count: u64, more: &More) -> io::Result<Pings> {
    let had_driver = device.driver() != 0;
    if !had_driver && !device.set_driver(VERSION) {
        let text = format!(
            "the device speaks version {} and not {VERSION}",
            device.version()
        );
        return Err(io::Error::other(text));
    }
    let pings = ping_fast(device, count).and_then(|fast| {
        let deferred = ping_deferred(device, count)?;
        let upcall = more.upcall.then(|| ping_upcall(device, SLOT, count));
        let port = more.port.map(|path| ping_port(path, count));
        Ok(Pings {
            fast,
            deferred,
            upcall: upcall.transpose()?,
            port: port.transpose()?,
        })
    });
    if !had_driver {
        device.set_driver(0);
    }
    pings
}

fn the_ping(number: u64) -> Call {
    let mut call = Call {
        service: service::CHANNEL,
        operation: service::PING,
        ..Call::default()
    };
    call.arguments[0] = number;
    call
}

fn ping_fast(device: &Device, count: u64) -> io::Result<Fast> {
    let clock = Clock::start();
    let accesses = device.accesses();
    let mut times_ns = Vec::new();
    let (mut busy, mut busy_in_row) = (0, 0);
    while (times_ns.len() as u64) < count {
        let number = times_ns.len() as u64;
        let began_ns = clock.now_ns();
        let outcome = device.fast_call(SLOT, the_ping(number))?;
        let took_ns = clock.now_ns() - began_ns;
        match outcome.status {
            Status::Ok if outcome.value == number => {
                times_ns.push(took_ns);
                busy_in_row = 0;
            }
            Status::Busy if busy_in_row < MOST_BUSY => {
                busy += 1;
                busy_in_row += 1;
                std::thread::sleep(BUSY_REST);
            }
            _ => {
                let text = format!("ping {number} was answered with {outcome:?}");
                return Err(io::Error::other(text));
            }
        }
    }
    Ok(Fast {
        count,
        busy,
        call: Spread::of(times_ns),
        register_accesses: device.accesses() - accesses,
    })
}

fn ping_deferred(device: &Device, count: u64) -> io::Result<Deferred> {
    let clock = Clock::start();
    let accesses = device.accesses();
    let (mut puts_ns, mut taken_ns) = (Vec::new(), Vec::new());
    let ring = device.ring()?;
    for number in 0..count {
        let began_ns = clock.now_ns();
        let mut place = 0;
        for of_burst in 0..BURST {
            place = ring.defer(the_ping(number * BURST + of_burst));
        }
        puts_ns.push((clock.now_ns() - began_ns) / BURST);
        while !is_past(device.ring_tail(), place) {
            if clock.now_ns() - began_ns > TAKEN_WITHIN_NS || device.is_gone() {
                let text = format!(
                    "the host has not taken deferred call {place} in {} s",
                    TAKEN_WITHIN_NS / 1_000_000_000
                );
                return Err(io::Error::other(text));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        taken_ns.push(clock.now_ns() - began_ns);
    }
    Ok(Deferred {
        count: count * BURST,
        put: Spread::of(puts_ns),
        taken: Spread::of(taken_ns),
        register_accesses: device.accesses() - accesses,
    })
}

impl std::fmt::Display for Pings {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let spread = |of: &Option<Spread>| {
            of.map_or(String::new(), |of| {
                let mut text = String::new();
                let _ = write!(
                    text,
                    "min {} ns, median {} ns, p95 {} ns, p99 {} ns",
                    of.min_ns, of.median_ns, of.p95_ns, of.p99_ns
                );
                text
            })
        };
        let (fast, deferred) = (&self.fast, &self.deferred);
        writeln!(
            f,
            "fast       {} calls, {} busy, {} register accesses: {}",
            fast.count,
            fast.busy,
            fast.register_accesses,
            spread(&fast.call)
        )?;
        writeln!(
            f,
            "deferred   {} calls, {} register accesses: {}; taken after {}",
            deferred.count,
            deferred.register_accesses,
            spread(&deferred.put),
            spread(&deferred.taken)
        )?;
        if let Some(upcall) = &self.upcall {
            writeln!(
                f,
                "upcall     {} events, {} register accesses: {}",
                upcall.count,
                upcall.register_accesses,
                spread(&upcall.woken)
            )?;
        }
        if let Some(port) = &self.port {
            let times = spread(&port.round_trip);
            writeln!(f, "port       {} messages: {times}", port.count)?;
        }
        Ok(())
    }
}

/// Whether the tail of the ring, which is counted modulo 2^32, has left this place behind.
fn is_past(tail: u32, place: u32) -> bool {
    (1..=u32::MAX / 2).contains(&tail.wrapping_sub(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::channel::tests::FakeDevice;
    use crate::domain::channel_abi::{
        CLASS_BYTES, CLASS_NAME_BYTES, RESOURCES, class, guest, host, register,
    };

    #[test]
    fn a_place_in_the_ring_is_passed_by_the_tail_after_it() {
        assert!(is_past(6, 5) && is_past(5 + 300, 5));
        assert!(!is_past(5, 5) && !is_past(4, 5));
        assert!(is_past(0, u32::MAX) && !is_past(u32::MAX, 0));
    }

    #[test]
    fn a_state_shows_ports_and_granted_classes() {
        let fake = FakeDevice::new("view");
        let entry = host::CLASSES + (3 * RESOURCES + 2) * CLASS_BYTES;
        fake.set(4, host::CLASS_NAMES + 3 * CLASS_NAME_BYTES, b"video\x1b\0");
        fake.set(4, entry + class::USED, &[1, 5, 1]);
        fake.set(
            4,
            entry + class::BYTES_PER_SECOND,
            &1_000_000_u64.to_le_bytes(),
        );
        fake.set(4, host::SERVICES, b"channel");
        fake.set(4, host::SERVICES + service::NUMBER, &[1, 0, 0, 0, 1]);
        fake.set(0, register::DRIVER, &[1]);
        fake.set(0, register::PORT_MAP, &[1]);
        fake.set(2, guest::PORT_MAP + 80, &[0x83]);
        fake.set(2, guest::PORT_MAP + 65_536 + 53, &[0x83, 0x7f]);
        let shown = state(&open(&fake.root).unwrap());
        let text = shown.to_string();
        assert!(
            text.contains("port map in force, 1 ports of TCP and 1 of UDP"),
            "{text}"
        );
        assert!(text.contains("services   channel 1"), "{text}");
        assert!(text.contains("video\\u{1b}"), "{text}");
        assert!(text.contains("net.inbound     5        1000000"), "{text}");
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(json["classes"].as_array().unwrap().len(), 1);
        assert_eq!(
            json["classes"][0]["operations_per_second"],
            serde_json::Value::Null
        );
    }

    #[test]
    fn a_device_that_answers_no_ping_is_an_error() {
        let fake = FakeDevice::new("no-ping");
        let device = open(&fake.root).unwrap();
        let error = ping(&device, 1, &More::default()).unwrap_err();
        assert!(error.to_string().contains("did not answer"), "{error}");
        assert_eq!(fake.get(0, register::DRIVER, 1), [0], "as it was");
    }

    #[test]
    fn no_device_is_an_error_with_a_remedy() {
        let error = open(Path::new("/nonexistent")).err().unwrap();
        assert!(error.contains("sluice attach"), "{error}");
    }
}
