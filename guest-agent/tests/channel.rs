// SPDX-License-Identifier: GPL-2.0-or-later
//! The real agent and the port map of real sockets. The device's memory is plain files: of the
//! device itself only what it holds is looked at here. Needs root.

mod common;
use common::*;
use serde_json::{Value, json};
use sluice_agent::domain::channel_abi::{guest, register};
use std::process::Command;

const UDP: usize = 65_536;

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
    let (mut host, device) = Host::start_plugged();
    let mut watched = Watched::start();
    host.assign(watched.pid(), 3);
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
    let (mut host, device) = Host::start_plugged();
    let mut watched = Watched::start();
    let listener = port(&ports(&mut watched), "listener");
    host.assign(watched.pid(), 3);
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
    let (mut host, device) = Host::start_plugged();
    let watched = Watched::start();
    host.assign(watched.pid(), 3);
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
    let (mut host, device) = Host::start_plugged();
    let watched = Watched::start();
    host.assign(watched.pid(), 3);
    host.end(libc::SIGKILL);
    assert!(host.untag());
    assert!(device.is_empty() && !device.is_in_force());
}
