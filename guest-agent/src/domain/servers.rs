// SPDX-License-Identifier: GPL-2.0-or-later
//! How full the servers of the classes are: what the guest tells its host of them.

use super::channel_abi::SERVERS;
use super::ports::PortTable;
use super::tag::Tag;
use std::collections::{BTreeMap, HashMap};

/// A TCP socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    pub port: u16,
    pub inode: u64,
    /// Connections that wait to be accepted, and how many may.
    pub queued: u32,
    pub queue_max: u32,
}

/// A port of a class on which somebody listens. Of several listeners, the fullest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerRecord {
    pub tag: Tag,
    pub port: u16,
    pub queued: u32,
    pub queue_max: u32,
    /// Connections that processes of the class have, accepted or made, from this port.
    pub open: u32,
}

/// By tag and port; those beyond the room that the host has are left out, and counted. Each class
/// has an equal share of that room.
pub fn servers(listeners: &[Listener], ports: &PortTable) -> (Vec<ServerRecord>, usize) {
    let mut found: BTreeMap<(Tag, u16), ServerRecord> = BTreeMap::new();
    for listener in listeners {
        let Some((tag, sockets)) = ports.server(listener.inode, listener.port) else {
            continue;
        };
        let record = found.entry((tag, listener.port)).or_insert(ServerRecord {
            tag,
            port: listener.port,
            queued: listener.queued,
            queue_max: listener.queue_max,
            open: sockets,
        });
        record.open = record.open.saturating_sub(1);
        // a / b > c / d, without a division; one more waits than the length says.
        let fill = |queued: u32, max: u32| u64::from(queued) * (u64::from(max) + 1);
        if fill(listener.queued, record.queue_max) > fill(record.queued, listener.queue_max) {
            record.queued = listener.queued;
            record.queue_max = listener.queue_max;
        }
    }
    let left_out = found.len().saturating_sub(SERVERS);
    let mut of_tag: HashMap<Tag, usize> = HashMap::new();
    let mut ranked: Vec<(usize, ServerRecord)> = found
        .into_values()
        .map(|record| {
            let rank = of_tag.entry(record.tag).or_default();
            *rank += 1;
            (*rank, record)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut records: Vec<ServerRecord> = ranked.into_iter().map(|(_, record)| record).collect();
    records.truncate(SERVERS);
    records.sort_by_key(|record| (record.tag, record.port));
    (records, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ports::{Endpoint, Local, Protocol};

    fn tag(number: u64) -> Tag {
        Tag::new(number).unwrap()
    }

    fn listener(port: u16, inode: u64, queued: u32, queue_max: u32) -> Listener {
        Listener {
            port,
            inode,
            queued,
            queue_max,
        }
    }

    fn table(sockets: impl IntoIterator<Item = (u64, u16, u64)>) -> PortTable {
        let mut table = PortTable::default();
        table.set_order(vec![tag(3), tag(5)]);
        for (inode, port, of) in sockets {
            let protocol = Protocol::Tcp;
            table.observe(inode, Local::Bound(Endpoint { protocol, port }), tag(of));
        }
        table
    }

    #[test]
    fn a_server_is_of_the_class_of_its_socket_and_others_are_not_told() {
        let ports = table([(1, 80, 3), (2, 80, 3), (3, 80, 3), (4, 443, 5)]);
        let listeners = [
            listener(80, 1, 7, 128),
            listener(443, 4, 0, 0),
            // Of a process of no class, and a number that another socket has by now.
            listener(22, 9, 100, 128),
            listener(81, 4, 100, 128),
        ];
        let (found, left_out) = servers(&listeners, &ports);
        let expected = |tag, port, queued, queue_max, open| ServerRecord {
            tag,
            port,
            queued,
            queue_max,
            open,
        };
        assert_eq!(
            found,
            [
                expected(tag(3), 80, 7, 128, 2),
                expected(tag(5), 443, 0, 0, 0)
            ]
        );
        assert_eq!(left_out, 0);
    }

    #[test]
    fn of_several_listeners_of_a_port_the_fullest_counts() {
        let ports = table([(1, 80, 3), (2, 80, 3), (3, 80, 3), (7, 80, 3)]);
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let all = [
                listener(80, 1, 30, 128),
                listener(80, 2, 8, 10),
                listener(80, 3, 0, 0),
            ];
            let listeners: Vec<Listener> = order.iter().map(|&place| all[place]).collect();
            let (found, _) = servers(&listeners, &ports);
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].queued, found[0].queue_max), (8, 10), "{order:?}");
            assert_eq!(found[0].open, 1);
        }
    }

    #[test]
    fn more_servers_than_records_are_counted() {
        let count = SERVERS as u16 + 3;
        let ports = table((1..=count).map(|port| (u64::from(port), port, 3)));
        let listeners: Vec<Listener> = (1..=count)
            .map(|port| listener(port, u64::from(port), 0, 1))
            .collect();
        let (found, left_out) = servers(&listeners, &ports);
        assert_eq!((found.len(), left_out), (SERVERS, 3));
    }

    #[test]
    fn a_class_with_very_many_servers_hides_no_other_ones() {
        let count = 2 * SERVERS as u16;
        let many = (1..=count).map(|port| (u64::from(port), port, 3));
        let ports = table(many.chain([(1000, 5001, 5), (1001, 5002, 5)]));
        let listeners: Vec<Listener> = (1..=count)
            .map(|port| listener(port, u64::from(port), 0, 1))
            .chain([listener(5001, 1000, 9, 9), listener(5002, 1001, 9, 9)])
            .collect();
        let (found, left_out) = servers(&listeners, &ports);
        assert_eq!((found.len(), left_out), (SERVERS, SERVERS + 2));
        let ports: Vec<u16> = found.iter().map(|one| one.port).collect();
        assert_eq!(ports[SERVERS - 3..], [SERVERS as u16 - 2, 5001, 5002]);
    }
}
