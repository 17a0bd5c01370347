// SPDX-License-Identifier: GPL-2.0-or-later
//! The real agent and the port map of real sockets. The device's memory is plain files: of the
//! device itself only what it holds is looked at here. Needs root.

mod common;
use common::*;
use serde_json::{Value, json};
use sluice_agent::domain::channel_abi::{
    GUEST_BYTES, HEADER_MAGIC, HOST_BYTES, MAGIC, REGISTER_BYTES, guest, host, register,
};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const UDP: usize = 65_536;

/// A device as sysfs shows it, with files as its memory.
struct Device(PathBuf);

impl Device {
    fn plug(agent: &Path) -> Device {
        let folder = agent.join("devices/0000:00:05.0");
        fs::create_dir_all(&folder).unwrap();
        for (bar, bytes) in [(0, REGISTER_BYTES), (2, GUEST_BYTES), (4, HOST_BYTES)] {
            let file = File::create(folder.join(format!("resource{bar}"))).unwrap();
            file.set_len(bytes as u64).unwrap();
        }
        let device = Device(folder);
        device.set(0, register::MAGIC, &MAGIC.to_le_bytes());
        device.set(4, host::MAGIC, HEADER_MAGIC);
        device.set(4, host::EPOCH, &[1]);
        for (name, text) in [
            ("enable", "0"),
            ("device", "0x10fc"),
            ("subsystem_vendor", "0x1af4"),
            ("subsystem_device", "0x5c1c"),
            ("vendor", "0x1af4"),
        ] {
            fs::write(device.0.join(name), text).unwrap();
        }
        device
    }

    fn set(&self, bar: u32, offset: usize, bytes: &[u8]) {
        let path = self.0.join(format!("resource{bar}"));
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(bytes, offset as u64).unwrap();
    }

    fn byte(&self, bar: u32, offset: usize) -> u8 {
        let file = File::open(self.0.join(format!("resource{bar}"))).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset as u64).unwrap();
        byte[0]
    }

    fn entry(&self, index: usize) -> u8 {
        self.byte(2, guest::PORT_MAP + index)
    }

    fn is_in_force(&self) -> bool {
        self.byte(0, register::PORT_MAP) == 1
    }

    fn is_empty(&self) -> bool {
        let pages = fs::read(self.0.join("resource2")).unwrap();
        pages[guest::PORT_MAP..].iter().all(|&byte| byte == 0)
    }
}

/// Indexes of the child's sockets in the map, by name.
fn port(ports: &Value, name: &str) -> usize {
    let port = ports[name].as_u64().unwrap() as usize;
    if name.starts_with("udp") {
        UDP + port
    } else {
        port
    }
}

fn ports(watched: &mut Watched) -> Value {
    serde_json::from_str(&watched.tell("ports")).unwrap()
}

fn hello(host: &mut Host) -> Value {
    host.call("hello", json!({"protocol": 2}))["result"]["channel"].clone()
}

#[test]
fn the_port_map_has_the_sockets_of_tagged_processes() {
    let mut host = Host::start();
    let why = hello(&mut host)["why"].as_str().unwrap().to_owned();
    assert!(why.contains("no device sluice-channel"), "{why}");
    let device = Device::plug(&host.folder);
    let mut watched = Watched::start();
    watched.tell("accept");
    let found = ports(&mut watched);
    let peer = found["peers"][0].as_u64().unwrap() as usize;
    host.assign(watched.pid(), 3);
    eventually("the device is found while the agent runs", || {
        device.is_in_force()
    });
    for name in ["udp", "listener", "udp6"] {
        assert_eq!(device.entry(port(&found, name)), 0x83, "{name}");
    }
    assert_eq!(device.entry(peer), 0x83);
    assert_eq!(device.entry(port(&found, "udp") - UDP), 0, "UDP is not TCP");
    assert_eq!(
        hello(&mut host),
        json!({"version": 1, "port_map": true, "why": ""})
    );
    host.assign(watched.pid(), 5);
    assert_eq!(device.entry(port(&found, "listener")), 0x85);
    host.no_rules();
    assert!(device.is_empty());
    assert!(
        device.is_in_force(),
        "no process is in a class, and none may choose one"
    );
}

#[test]
fn a_closed_connection_keeps_its_class_until_it_has_ended() {
    let mut host = Host::start();
    let device = Device::plug(&host.folder);
    let mut watched = Watched::start();
    host.assign(watched.pid(), 3);
    eventually("the device is found", || device.is_in_force());
    for (order, stays) in [("close-peers-first", true), ("close-peers-last", false)] {
        watched.tell("accept");
        let peer = ports(&mut watched)["peers"][0].as_u64().unwrap() as usize;
        eventually("the connection is mapped", || device.entry(peer) == 0x83);
        watched.tell(order);
        if stays {
            // A scan that has seen the close: a later socket is mapped.
            watched.tell("accept");
            let later = ports(&mut watched)["peers"][0].as_u64().unwrap() as usize;
            eventually("a later socket is mapped", || device.entry(later) == 0x83);
            assert_eq!(device.entry(peer), 0x83, "it is in TIME_WAIT");
            watched.tell("close-peers-last");
        } else {
            eventually("nothing is left of it", || device.entry(peer) == 0);
        }
    }
}

#[test]
fn a_killed_agent_leaves_its_map_and_a_stopped_one_takes_it_back() {
    let mut host = Host::start();
    let device = Device::plug(&host.folder);
    let mut watched = Watched::start();
    let listener = port(&ports(&mut watched), "listener");
    host.assign(watched.pid(), 3);
    eventually("the device is found", || device.is_in_force());
    host.end(libc::SIGKILL);
    assert!(device.is_in_force());
    assert_eq!(device.entry(listener), 0x83);
    // A connection that came while there was no agent, and a port of no class.
    watched.tell("accept");
    let peer = ports(&mut watched)["peers"][0].as_u64().unwrap() as usize;
    device.set(2, guest::PORT_MAP + 1, &[0x83]);
    host.start_again();
    eventually("the new connection is mapped", || {
        device.entry(peer) == 0x83
    });
    eventually("an entry without a socket ends", || device.entry(1) == 0);
    assert_eq!(device.entry(listener), 0x83);
    host.end(libc::SIGTERM);
    assert!(device.is_empty() && !device.is_in_force());
    assert_eq!(device.byte(0, register::DRIVER), 0);
}

#[test]
fn the_command_shows_the_channel_beside_a_running_agent() {
    let mut host = Host::start();
    let device = Device::plug(&host.folder);
    let watched = Watched::start();
    host.assign(watched.pid(), 3);
    eventually("the device is found", || device.is_in_force());
    let show = || {
        let output = Command::new(env!("CARGO_BIN_EXE_sluice-agent"))
            .args(["channel", "--json", "--devices"])
            .arg(host.folder.join("devices"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let shown = show();
    assert_eq!(
        (&shown["driver"], &shown["port_map"]),
        (&json!(1), &json!(true))
    );
    // A listener of TCP, and UDP sockets of IPv4 and IPv6.
    assert_eq!(
        (&shown["tcp_ports"], &shown["udp_ports"]),
        (&json!(1), &json!(2))
    );
    assert!(device.is_in_force(), "a look changes nothing");
}

#[test]
fn untag_takes_the_map_of_a_killed_agent_back() {
    let mut host = Host::start();
    let device = Device::plug(&host.folder);
    let watched = Watched::start();
    host.assign(watched.pid(), 3);
    eventually("the device is found", || device.is_in_force());
    host.end(libc::SIGKILL);
    assert!(host.untag());
    assert!(device.is_empty() && !device.is_in_force());
}
