// SPDX-License-Identifier: GPL-2.0-or-later
//! Tells the host how full the servers of the classes are, by the channel's records: its limit
//! of new connections can follow that.

use crate::adapters::channel::Device;
use crate::adapters::clock::thread_cpu_ns;
use crate::adapters::listeners::listeners;
use crate::domain::channel_abi::SERVERS;
use crate::domain::ports::PortTable;
use crate::domain::servers::{Listener, ServerRecord, servers};
use crate::services::agent::rest_ns;
use crate::services::log::{Level, Log};

/// Between looks: this, or more where any user's listening sockets are very many.
const LOOK_NS: u64 = 500_000_000;

#[derive(Default)]
pub struct Servers {
    look_ns: u64,
    /// Of the device that has the records.
    generation: u64,
    written: Vec<ServerRecord>,
    /// Said once.
    is_failure_told: bool,
    is_excess_told: bool,
}

impl Servers {
    /// Looks if it is time. `device`: with its generation.
    pub fn keep(
        &mut self,
        now_ns: u64,
        device: Result<(&Device, u64), String>,
        ports: &PortTable,
        log: &mut Log,
    ) {
        let Ok((device, generation)) = device else {
            return;
        };
        if generation != self.generation {
            self.generation = generation;
            // A predecessor's are not known, and a reset device has none.
            (0..SERVERS).for_each(|place| device.clear_server(place));
            self.written.clear();
        }
        if now_ns < self.look_ns {
            return;
        }
        let began_ns = thread_cpu_ns();
        let found = if ports.ports() == 0 {
            Vec::new()
        } else {
            self.look(now_ns, ports, log)
        };
        let took_ns = thread_cpu_ns().saturating_sub(began_ns);
        self.look_ns = now_ns.saturating_add(rest_ns(took_ns).max(LOOK_NS));
        for (place, record) in found.iter().enumerate() {
            if self.written.get(place) != Some(record) {
                device.write_server(place, record);
            }
        }
        (found.len()..self.written.len()).for_each(|place| device.clear_server(place));
        self.written = found;
    }

    /// Leaves no record, which nobody would keep up to date.
    pub fn end(&mut self, device: &Device) {
        (0..self.written.len()).for_each(|place| device.clear_server(place));
        self.written.clear();
    }

    fn look(&mut self, now_ns: u64, ports: &PortTable, log: &mut Log) -> Vec<ServerRecord> {
        let is_known = |one: &Listener| ports.server(one.inode, one.port).is_some();
        let listening = match listeners(is_known) {
            Ok(listening) => listening,
            Err(error) => {
                if !std::mem::replace(&mut self.is_failure_told, true) {
                    let text = format!(
                        "cannot ask the kernel for listening sockets ({error}): the host does not \
                         see how full servers are; load the module tcp_diag"
                    );
                    log.add(now_ns, Level::Warning, text);
                }
                return Vec::new();
            }
        };
        let (found, left_out) = servers(&listening, ports);
        if left_out > 0 && !std::mem::replace(&mut self.is_excess_told, true) {
            let text = format!(
                "the host has records of {SERVERS} servers and the classes have {left_out} more: \
                 it does not see how full these are"
            );
            log.add(now_ns, Level::Warning, text);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::channel::tests::FakeDevice;
    use crate::domain::channel_abi::{SERVER_BYTES, guest};
    use crate::domain::ports::{Endpoint, Local, Protocol};
    use crate::domain::tag::Tag;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    fn record(fake: &FakeDevice, place: usize) -> Vec<u8> {
        fake.get(2, guest::SERVERS + place * SERVER_BYTES, SERVER_BYTES)
    }

    #[test]
    fn a_servers_record_is_there_as_long_as_it_listens() {
        let fake = FakeDevice::new("servers");
        let device = Device::open(&fake.folder()).unwrap();
        // Of a predecessor.
        fake.set(2, guest::SERVERS + 5 * SERVER_BYTES + 4, &[1]);
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let path = format!("/proc/self/fd/{}", server.as_raw_fd());
        let inode = std::fs::metadata(path).unwrap().ino();
        let mut ports = PortTable::default();
        let protocol = Protocol::Tcp;
        ports.observe(
            inode,
            Local::Bound(Endpoint { protocol, port }),
            Tag::new(3).unwrap(),
        );
        let (mut servers, mut log) = (Servers::default(), Log::default());
        let mut keep = |now_ns: u64, ports: &PortTable| {
            servers.keep(now_ns, Ok((&device, 1)), ports, &mut log);
        };
        keep(0, &ports);
        let first = record(&fake, 0);
        let [low, high] = port.to_le_bytes();
        assert_eq!(first[4..8], [1, 3, low, high]);
        assert_eq!(record(&fake, 5)[4], 0);
        keep(LOOK_NS, &ports);
        assert_eq!(record(&fake, 0), first, "nothing new is not written");
        drop(server);
        ports.released(inode);
        keep(LOOK_NS + 1, &ports);
        assert_eq!(record(&fake, 0), first, "looked at in half seconds");
        keep(2 * LOOK_NS, &ports);
        assert_eq!(record(&fake, 0)[4], 0);
        assert!(log.take().is_empty());
    }

    #[test]
    fn an_agent_that_ends_leaves_no_record() {
        let fake = FakeDevice::new("servers-end");
        let device = Device::open(&fake.folder()).unwrap();
        let record_of = |port| ServerRecord {
            tag: Tag::new(3).unwrap(),
            port,
            queued: 7,
            queue_max: 8,
            open: 9,
        };
        let mut servers = Servers {
            written: vec![record_of(80), record_of(443)],
            ..Servers::default()
        };
        for (place, one) in servers.written.iter().enumerate() {
            device.write_server(place, one);
        }
        servers.end(&device);
        assert_eq!((record(&fake, 0)[4], record(&fake, 1)[4]), (0, 0));
    }
}
