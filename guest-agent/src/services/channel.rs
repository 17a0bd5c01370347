// SPDX-License-Identifier: GPL-2.0-or-later
//! Holds the device `sluice-channel` as long as it is there, and keeps its port map in step
//! with the sockets of tagged processes. The device may be reset, unplugged and plugged at any
//! time: it is looked for every two seconds, and its epoch at each scan.

use crate::adapters::channel::{self, Device, REMEDY};
use crate::adapters::clock::Clock;
use crate::adapters::procfs::Proc;
use crate::domain::channel_abi::VERSION;
use crate::domain::ports::{Listed, PortTable};
use crate::domain::tag::Tag;
use crate::services::log::{Level, Log};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

const LOOK_NS: u64 = 2_000_000_000;
/// Between looks for connections that are closing, while there are any: this, or so many times
/// the length of the last look. A guest may have 100,000 connections.
const TAILS_NS: u64 = 1_000_000_000;
const REST_PER_LOOK: u64 = 99;
const WITHOUT: &str = "packets carry their class as a DSCP alone";
const NO_RULES: &str = "the host has sent no rules yet";

pub struct Channel {
    root: PathBuf,
    device: Option<Device>,
    /// How many devices there were, each after a reset another one.
    generation: u64,
    epoch: u64,
    has_map: bool,
    /// The reason why the port map is not in force; empty if it is.
    why: String,
    look_ns: u64,
    tails_ns: u64,
}

impl Channel {
    /// `root`: the folder of all PCI devices.
    pub fn at(root: PathBuf) -> Channel {
        Channel {
            root,
            device: None,
            generation: 0,
            epoch: 0,
            has_map: false,
            why: String::new(),
            look_ns: 0,
            tails_ns: 0,
        }
    }

    /// The member `channel` of the greeting.
    pub fn state(&self) -> Value {
        let version = if self.device.is_some() { VERSION } else { 0 };
        json!({"version": version, "port_map": self.has_map, "why": self.why})
    }

    /// The device and its generation; the error says why there is none.
    pub fn device(&self) -> Result<(&Device, u64), String> {
        match &self.device {
            Some(device) => Ok((device, self.generation)),
            None => Err(format!("no channel: {}", self.why)),
        }
    }

    /// Whether closing connections are to be listed for `settle_tails`.
    pub fn wants_tails(&self, now_ns: u64, ports: &PortTable) -> bool {
        ports.has_tails() && now_ns >= self.tails_ns
    }

    /// Ends the tails of ports whose connections are closed. `pids` are of processes in whose
    /// network namespaces there may be some.
    pub fn settle_tails(
        &mut self,
        now_ns: u64,
        ports: &mut PortTable,
        proc: &Proc,
        pids: impl Iterator<Item = i32>,
    ) {
        let clock = Clock::start();
        if !self.has_map {
            // Nobody reads the map.
            return ports.settle_tails(std::iter::empty());
        }
        // A list that is not whole could end a tail too early.
        if let Some(listed) = all_tcp_sockets(proc, pids) {
            ports.settle_tails(listed.into_iter());
        }
        let rest_ns = REST_PER_LOOK.saturating_mul(clock.now_ns());
        self.tails_ns = now_ns.saturating_add(rest_ns.max(TAILS_NS));
    }

    /// Finds the device or its loss, and writes changes of the map. `order`: the classes in
    /// the order of their rules, or nothing while no rules are known.
    pub fn keep(
        &mut self,
        now_ns: u64,
        order: Option<Vec<Tag>>,
        ports: &mut PortTable,
        log: &mut Log,
    ) {
        let was = (self.has_map, self.why.clone());
        let is_due = now_ns >= self.look_ns;
        if is_due {
            self.look_ns = now_ns.saturating_add(LOOK_NS);
        }
        let is_lost = self.device.as_ref().is_some_and(|device| {
            // After a reset nothing is in force, and the pages are empty.
            device.is_gone()
                || device.epoch() != self.epoch
                || (is_due && !(device.is_there() && self.is_in_force(device)))
        });
        if is_lost {
            self.device = None;
            self.has_map = false;
        }
        if self.device.is_none() && (is_due || is_lost) {
            self.look_for_device();
        }
        let Some(order) = order else {
            return self.tell(now_ns, was, log);
        };
        ports.set_order(order);
        if self.has_map {
            self.write_changes(ports);
        } else if self.device.is_some() {
            self.put_in_force(ports);
        }
        if self.has_map {
            for (endpoint, first, other) in ports.take_conflicts() {
                let text = format!(
                    "{endpoint} is used by sockets of the classes with tags {} and {}: all its \
                     frames belong to tag {}, whose rule comes first",
                    first.number(),
                    other.number(),
                    first.number()
                );
                log.add(now_ns, Level::Warning, text);
            }
        }
        self.tell(now_ns, was, log);
    }

    /// Ends the port map and leaves an empty one.
    pub fn end(&mut self) {
        if let Some(device) = self.device.take() {
            device.set_port_map(false);
            for (index, byte) in device.port_map().into_iter().enumerate() {
                if byte != 0 {
                    device.set_port(index, 0);
                }
            }
            device.set_driver(0);
        }
        self.has_map = false;
        self.look_ns = u64::MAX;
    }

    /// Whether the device still has what it was told: somebody else may have ended it.
    fn is_in_force(&self, device: &Device) -> bool {
        device.driver() == VERSION && (!self.has_map || device.has_port_map())
    }

    fn look_for_device(&mut self) {
        let opened = match channel::find(&self.root) {
            Some(folder) => Device::open(&folder),
            None => Err(format!("there is no device sluice-channel: {REMEDY}")),
        };
        let ready = opened.and_then(|device| {
            if device.driver() == VERSION || device.set_driver(VERSION) {
                Ok(device)
            } else {
                let version = device.version();
                Err(format!(
                    "the device {} speaks version {version} and not {VERSION}: install a \
                     matching agent",
                    device.address
                ))
            }
        });
        match ready {
            Ok(device) => {
                self.epoch = device.epoch();
                self.generation += 1;
                self.device = Some(device);
                self.why = NO_RULES.to_owned();
            }
            Err(why) => self.why = why,
        }
    }

    /// A predecessor's entries stay as long as their connections are closing.
    fn put_in_force(&mut self, ports: &mut PortTable) {
        let Some(device) = &self.device else { return };
        let present = device.port_map();
        if device.has_port_map() {
            for (index, &byte) in present.iter().enumerate() {
                ports.adopt(index, byte);
            }
        }
        for (index, (byte, former)) in ports.map().into_iter().zip(present).enumerate() {
            if byte != former {
                device.set_port(index, byte);
            }
        }
        if device.set_port_map(true) {
            self.has_map = true;
            self.why.clear();
        } else {
            self.why = format!("the device {} refuses its port map", device.address);
        }
    }

    fn write_changes(&mut self, ports: &mut PortTable) {
        let Some(device) = &self.device else { return };
        for (index, byte) in ports.take_changes() {
            device.set_port(index, byte);
        }
    }

    /// Says it once when the state has changed.
    fn tell(&self, now_ns: u64, (had_map, former): (bool, String), log: &mut Log) {
        if had_map == self.has_map && former == self.why {
            return;
        }
        match &self.device {
            Some(device) if self.has_map => {
                let text = format!(
                    "the channel is in force: device {}, version {VERSION}; its port map \
                     classes frames",
                    device.address
                );
                log.add(now_ns, Level::Info, text);
            }
            Some(_) if self.why == NO_RULES => {}
            _ => {
                let level = if had_map { Level::Warning } else { Level::Info };
                let text = format!("no channel: {}; {WITHOUT}", self.why);
                log.add(now_ns, level, text);
            }
        }
    }
}

/// Of each network namespace once; nothing if one could not be listed.
fn all_tcp_sockets(proc: &Proc, pids: impl Iterator<Item = i32>) -> Option<Vec<Listed>> {
    let mut namespaces = BTreeSet::new();
    let mut found = Vec::new();
    for pid in pids {
        // It may have ended; its namespace has ended with it, or has another process.
        let Ok(network) = proc.network(pid) else {
            continue;
        };
        if namespaces.insert(network) {
            found.extend(proc.tcp_sockets(pid).ok()?);
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::channel::tests::FakeDevice;
    use crate::domain::channel_abi::{guest, host, register};
    use crate::domain::ports::{Endpoint, Local, Protocol};

    const HTTP: Local = Local::Bound(Endpoint {
        protocol: Protocol::Tcp,
        port: 80,
    });

    struct Bench {
        fake: FakeDevice,
        channel: Channel,
        ports: PortTable,
        log: Log,
        now_ns: u64,
    }

    impl Bench {
        fn new(name: &str) -> Bench {
            let fake = FakeDevice::new(name);
            Bench {
                channel: Channel::at(fake.root.clone()),
                fake,
                ports: PortTable::default(),
                log: Log::default(),
                now_ns: 0,
            }
        }

        fn keep(&mut self) {
            let order = vec![tag(3), tag(5)];
            self.channel
                .keep(self.now_ns, Some(order), &mut self.ports, &mut self.log);
        }

        fn byte(&self, index: usize) -> u8 {
            self.fake.get(2, guest::PORT_MAP + index, 1)[0]
        }

        fn register(&self, offset: usize) -> u8 {
            self.fake.get(0, offset, 1)[0]
        }

        fn told(&mut self) -> Vec<String> {
            self.log.take().into_iter().map(|(_, text)| text).collect()
        }
    }

    fn tag(number: u64) -> Tag {
        Tag::new(number).unwrap()
    }

    #[test]
    fn the_map_follows_the_sockets() {
        let mut bench = Bench::new("follows");
        bench.ports.observe(1, HTTP, tag(3));
        bench.keep();
        assert_eq!(bench.byte(80), 0x83);
        assert_eq!(bench.register(register::PORT_MAP), 1);
        assert_eq!(bench.channel.state()["port_map"], true);
        assert_eq!(bench.channel.state()["why"], "");
        assert!(bench.told()[0].contains("in force: device 0000:00:05.0"));
        bench.ports.observe(1, HTTP, tag(5));
        bench.keep();
        assert_eq!(bench.byte(80), 0x85);
        bench.ports.released(1);
        bench.keep();
        assert_eq!(bench.byte(80), 0);
        assert!(bench.told().is_empty());
    }

    #[test]
    fn without_rules_no_map_is_in_force() {
        let mut bench = Bench::new("no-rules");
        bench
            .channel
            .keep(0, None, &mut bench.ports, &mut bench.log);
        assert_eq!(bench.register(register::DRIVER), 1);
        assert_eq!(bench.register(register::PORT_MAP), 0);
        assert_eq!(bench.channel.state()["why"], NO_RULES);
        assert_eq!(bench.channel.state()["version"], 1);
        assert!(bench.told().is_empty());
    }

    #[test]
    fn a_reset_device_gets_the_whole_map_again() {
        let mut bench = Bench::new("reset");
        bench.ports.observe(1, HTTP, tag(3));
        bench.keep();
        bench.fake.set(2, guest::PORT_MAP + 80, &[0]);
        bench.fake.set(0, register::PORT_MAP, &[0]);
        bench.fake.set(0, register::DRIVER, &[0]);
        bench.fake.set(4, host::EPOCH, &[2]);
        bench.keep();
        assert_eq!(bench.byte(80), 0x83);
        assert_eq!(bench.register(register::PORT_MAP), 1);
        assert_eq!(bench.register(register::DRIVER), 1);
    }

    #[test]
    fn a_map_that_somebody_else_ended_is_put_in_force_again() {
        let mut bench = Bench::new("ended");
        bench
            .channel
            .keep(0, None, &mut bench.ports, &mut bench.log);
        bench.fake.set(0, register::DRIVER, &[0]);
        bench.now_ns += LOOK_NS;
        bench.ports.observe(1, HTTP, tag(3));
        bench.keep();
        assert_eq!(bench.register(register::DRIVER), 1, "without rules, too");
        // As a ping does that began before the agent.
        bench.fake.set(0, register::PORT_MAP, &[0]);
        bench.fake.set(0, register::DRIVER, &[0]);
        bench.now_ns += LOOK_NS;
        bench.keep();
        assert_eq!(bench.register(register::DRIVER), 1);
        assert_eq!(bench.register(register::PORT_MAP), 1);
        assert_eq!(bench.byte(80), 0x83);
    }

    #[test]
    fn an_unplugged_device_is_told_and_found_when_it_is_back() {
        let mut bench = Bench::new("replug");
        bench.ports.observe(1, HTTP, tag(3));
        bench.keep();
        bench.told();
        bench.fake.unplug();
        bench.now_ns += 1;
        bench.keep();
        assert_eq!(bench.channel.state()["port_map"], false);
        assert_eq!(bench.channel.state()["version"], 0);
        let told = bench.told();
        assert!(told[0].contains("no device sluice-channel"), "{told:?}");
        bench.fake.plug();
        bench.keep();
        assert_eq!(
            bench.channel.state()["port_map"],
            false,
            "looked for in seconds"
        );
        bench.now_ns += LOOK_NS;
        bench.keep();
        assert_eq!(bench.byte(80), 0x83);
        assert_eq!(bench.channel.state()["port_map"], true);
    }

    #[test]
    fn a_successor_goes_on_with_the_map_and_the_end_clears_it() {
        let mut bench = Bench::new("successor");
        bench.ports.observe(1, HTTP, tag(3));
        bench.keep();
        bench.fake.set(2, guest::PORT_MAP + 81, &[0x85, 0x8e]);
        let fake = bench.fake;
        let mut next = Bench {
            channel: Channel::at(fake.root.clone()),
            fake,
            ports: PortTable::default(),
            log: Log::default(),
            now_ns: 0,
        };
        next.ports.observe(7, HTTP, tag(5));
        next.keep();
        assert_eq!(next.byte(80), 0x85, "as the present rules say");
        assert_eq!(next.byte(81), 0x85, "it may have connections that close");
        assert_eq!(next.byte(82), 0, "of no class of these rules");
        assert!(next.channel.wants_tails(0, &next.ports));
        next.channel.end();
        assert_eq!((next.byte(80), next.byte(81)), (0, 0));
        assert_eq!(next.register(register::PORT_MAP), 0);
        assert_eq!(next.register(register::DRIVER), 0);
        next.now_ns = LOOK_NS;
        next.keep();
        assert_eq!(next.register(register::DRIVER), 0, "it has ended");
    }

    #[test]
    fn a_shared_port_is_told_once() {
        let mut bench = Bench::new("shared");
        bench.ports.observe(1, HTTP, tag(5));
        bench.ports.observe(2, HTTP, tag(3));
        bench.keep();
        bench.keep();
        let told = bench.told();
        let shared = |text: &&String| text.starts_with("TCP port 80 is used by sockets");
        assert_eq!(told.iter().filter(shared).count(), 1, "{told:?}");
    }

    #[test]
    fn tails_end_when_the_kernel_lists_no_connection() {
        let mut bench = Bench::new("tails");
        // No process listens on or closes this one.
        let port = Endpoint {
            protocol: Protocol::Udp,
            port: 1,
        };
        bench.keep();
        bench.ports.observe(1, Local::Bound(port), tag(3));
        bench.ports.closed(1);
        bench.keep();
        assert_eq!(bench.byte(port.index()), 0x83);
        let proc = Proc::open().unwrap();
        let own = std::process::id() as i32;
        bench
            .channel
            .settle_tails(0, &mut bench.ports, &proc, std::iter::once(own));
        bench.keep();
        assert_eq!(bench.byte(port.index()), 0);
    }
}
