// SPDX-License-Identifier: GPL-2.0-or-later
//! Which local port belongs to which class: the bytes of the port map.
//!
//! A port belongs to the class of the sockets of tagged processes that use it. If sockets of
//! several classes do (in two network namespaces, or by `SO_REUSEPORT`), the class whose first
//! rule stands first has it.
//!
//! A port whose last socket was closed keeps its class as a *tail*: the kernel still sends
//! what was written before, and no process owns such a connection. The tail ends when no
//! connection of the port is closing any more, TIME_WAIT included. It ends earlier if a
//! process of no class has a socket of the port by then and the old connections have nothing
//! left to send.

use super::channel_abi::{PORT_MAP_BYTES, PORT_MAP_ENTRY};
use super::tag::Tag;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// The local end of a socket, as the port map has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub protocol: Protocol,
    pub port: u16,
}

const PORTS: usize = PORT_MAP_BYTES / 2;

impl Endpoint {
    /// Of its byte in the port map.
    pub fn index(self) -> usize {
        let table = match self.protocol {
            Protocol::Tcp => 0,
            Protocol::Udp => PORTS,
        };
        table + usize::from(self.port)
    }

    fn at(index: usize) -> Option<Endpoint> {
        let protocol = match index / PORTS {
            0 => Protocol::Tcp,
            1 => Protocol::Udp,
            _ => return None,
        };
        let port = u16::try_from(index % PORTS).ok()?;
        Some(Endpoint { protocol, port })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        };
        write!(f, "{protocol} port {}", self.port)
    }
}

/// What a look at a socket found of its local end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    Bound(Endpoint),
    /// It has no port yet.
    Unbound,
    /// It is neither of TCP nor of UDP.
    Portless,
}

/// States of a connection as the kernel numbers them, of a closed socket: the first three may
/// have something left to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// FIN_WAIT1, CLOSING, LAST_ACK
    Sending,
    /// FIN_WAIT2, TIME_WAIT
    Silent,
    /// Any other.
    Alive,
}

/// A TCP socket that the kernel lists.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    pub port: u16,
    pub stage: Stage,
    /// 0: of no process.
    pub inode: u64,
}

#[derive(Debug, Default)]
struct Claims {
    /// Sockets of each class.
    by_tag: Vec<(Tag, u32)>,
    /// The class of the sockets that were closed last.
    tail: Option<Tag>,
    is_conflict_told: bool,
}

#[derive(Debug)]
struct Known {
    local: Local,
    tag: Tag,
}

#[derive(Debug, Default)]
pub struct PortTable {
    sockets: HashMap<u64, Known>,
    claims: HashMap<Endpoint, Claims>,
    /// Ports with a tail.
    tails: BTreeSet<Endpoint>,
    changed: BTreeSet<Endpoint>,
    /// Tags in the order of their first rules.
    order: Vec<Tag>,
    conflicts: Vec<(Endpoint, Tag, Tag)>,
}

impl PortTable {
    /// Classes in the order of their rules. A class without a rule keeps no tail.
    pub fn set_order(&mut self, order: Vec<Tag>) {
        if order == self.order {
            return;
        }
        self.order = order;
        for (&endpoint, claims) in &mut self.claims {
            claims.is_conflict_told = false;
            if claims.by_tag.len() > 1 {
                self.changed.insert(endpoint);
            }
        }
        for endpoint in self.tails.clone() {
            let tail = self.claims.get(&endpoint).and_then(|claims| claims.tail);
            if tail.is_none_or(|tag| !self.order.contains(&tag)) {
                self.end_tail(endpoint);
            }
        }
    }

    /// Whether nothing about the socket's port has to be looked at again.
    pub fn is_settled(&self, inode: u64) -> bool {
        self.sockets
            .get(&inode)
            .is_some_and(|known| known.local != Local::Unbound)
    }

    /// A socket of a process of this class was looked at.
    pub fn observe(&mut self, inode: u64, local: Local, tag: Tag) {
        let former = self.sockets.insert(inode, Known { local, tag });
        if former
            .as_ref()
            .is_some_and(|former| former.local == local && former.tag == tag)
        {
            return;
        }
        if let Local::Bound(endpoint) = local {
            let claims = self.claims.entry(endpoint).or_default();
            match claims.by_tag.iter_mut().find(|(other, _)| *other == tag) {
                Some((_, sockets)) => *sockets += 1,
                None => {
                    claims.by_tag.push((tag, 1));
                    self.changed.insert(endpoint);
                }
            }
        }
        if let Some(former) = former {
            self.withdraw(&former);
        }
    }

    /// The socket has no holder of a class any more, and was closed by its last one.
    pub fn closed(&mut self, inode: u64) {
        let Some(known) = self.sockets.remove(&inode) else {
            return;
        };
        if let Local::Bound(endpoint) = known.local {
            self.keep_tail(endpoint, known.tag);
        }
        self.withdraw(&known);
    }

    /// The socket lives on in a process of no class.
    pub fn released(&mut self, inode: u64) {
        if let Some(known) = self.sockets.remove(&inode) {
            self.withdraw(&known);
        }
    }

    /// An entry of the map that a predecessor wrote: its port may have closing connections.
    pub fn adopt(&mut self, index: usize, byte: u8) {
        let (Some(endpoint), Some(tag)) = (Endpoint::at(index), tag_of(byte)) else {
            return;
        };
        if self.order.contains(&tag) && !self.claims.contains_key(&endpoint) {
            self.keep_tail(endpoint, tag);
        }
    }

    pub fn has_tails(&self) -> bool {
        !self.tails.is_empty()
    }

    /// Ends tails that have nothing left, by a list of all TCP sockets made just now.
    pub fn settle_tails(&mut self, listed: impl Iterator<Item = Listed>) {
        #[derive(Default)]
        struct Found {
            sends: bool,
            is_closing: bool,
            is_strangers: bool,
        }
        let mut found: HashMap<u16, Found> = HashMap::new();
        for socket in listed {
            let endpoint = Endpoint {
                protocol: Protocol::Tcp,
                port: socket.port,
            };
            if !self.tails.contains(&endpoint) {
                continue;
            }
            let found = found.entry(socket.port).or_default();
            match socket.stage {
                Stage::Sending => found.sends = true,
                Stage::Silent => found.is_closing = true,
                Stage::Alive => {
                    found.is_strangers |=
                        socket.inode != 0 && !self.sockets.contains_key(&socket.inode);
                }
            }
        }
        for endpoint in self.tails.clone() {
            let goes_on = endpoint.protocol == Protocol::Tcp
                && found
                    .get(&endpoint.port)
                    .is_some_and(|found| found.sends || (found.is_closing && !found.is_strangers));
            if !goes_on {
                self.end_tail(endpoint);
            }
        }
    }

    /// Bytes of the map that changed: (index, byte).
    pub fn take_changes(&mut self) -> Vec<(usize, u8)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|endpoint| (endpoint.index(), self.decide(endpoint)))
            .collect()
    }

    /// The whole map.
    pub fn map(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; PORT_MAP_BYTES];
        let endpoints: Vec<Endpoint> = self.claims.keys().copied().collect();
        for endpoint in endpoints {
            bytes[endpoint.index()] = self.decide(endpoint);
        }
        self.changed.clear();
        bytes
    }

    /// Ports with a class now.
    pub fn ports(&self) -> usize {
        self.claims.len()
    }

    /// The class of a TCP socket of this port, and how many of that class's sockets have the port.
    pub fn server(&self, inode: u64, port: u16) -> Option<(Tag, u32)> {
        let protocol = Protocol::Tcp;
        let endpoint = Endpoint { protocol, port };
        let known = self.sockets.get(&inode)?;
        let claims = self.claims.get(&endpoint)?;
        let own = claims.by_tag.iter().find(|(tag, _)| *tag == known.tag)?;
        (known.local == Local::Bound(endpoint)).then_some(*own)
    }

    /// Ports of several classes that were not told yet: (port, class that has it, other).
    pub fn take_conflicts(&mut self) -> Vec<(Endpoint, Tag, Tag)> {
        std::mem::take(&mut self.conflicts)
    }

    fn decide(&mut self, endpoint: Endpoint) -> u8 {
        let Some(claims) = self.claims.get_mut(&endpoint) else {
            return 0;
        };
        let rank = |tag: &Tag| {
            let place = self.order.iter().position(|other| other == tag);
            (place.unwrap_or(usize::MAX), *tag)
        };
        let mut tags: Vec<Tag> = claims.by_tag.iter().map(|(tag, _)| *tag).collect();
        tags.sort_by_key(rank);
        if let ([first, second, ..], false) = (&tags[..], claims.is_conflict_told) {
            claims.is_conflict_told = true;
            self.conflicts.push((endpoint, *first, *second));
        }
        byte_of(tags.first().copied().or(claims.tail))
    }

    fn keep_tail(&mut self, endpoint: Endpoint, tag: Tag) {
        self.claims.entry(endpoint).or_default().tail = Some(tag);
        self.tails.insert(endpoint);
        self.changed.insert(endpoint);
    }

    fn end_tail(&mut self, endpoint: Endpoint) {
        self.tails.remove(&endpoint);
        if let Some(claims) = self.claims.get_mut(&endpoint) {
            claims.tail = None;
        }
        self.drop_if_unclaimed(endpoint);
    }

    /// Takes the claim of a socket off.
    fn withdraw(&mut self, known: &Known) {
        let Local::Bound(endpoint) = known.local else {
            return;
        };
        let Some(claims) = self.claims.get_mut(&endpoint) else {
            return;
        };
        if let Some(at) = claims.by_tag.iter().position(|(tag, _)| *tag == known.tag) {
            claims.by_tag[at].1 -= 1;
            if claims.by_tag[at].1 == 0 {
                claims.by_tag.remove(at);
                self.drop_if_unclaimed(endpoint);
            }
        }
    }

    fn drop_if_unclaimed(&mut self, endpoint: Endpoint) {
        self.changed.insert(endpoint);
        if self
            .claims
            .get(&endpoint)
            .is_some_and(|claims| claims.by_tag.is_empty() && claims.tail.is_none())
        {
            self.claims.remove(&endpoint);
        }
    }
}

fn byte_of(tag: Option<Tag>) -> u8 {
    tag.map_or(0, |tag| PORT_MAP_ENTRY + tag.number())
}

fn tag_of(byte: u8) -> Option<Tag> {
    Tag::new(u64::from(byte.checked_sub(PORT_MAP_ENTRY)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP: Endpoint = tcp(80);

    const fn tcp(port: u16) -> Endpoint {
        Endpoint {
            protocol: Protocol::Tcp,
            port,
        }
    }

    fn tag(number: u64) -> Tag {
        Tag::new(number).unwrap()
    }

    /// A table with classes 5 and 3, in this order.
    fn table() -> PortTable {
        let mut table = PortTable::default();
        table.set_order(vec![tag(5), tag(3)]);
        table
    }

    fn byte(table: &mut PortTable, endpoint: Endpoint) -> u8 {
        table.map()[endpoint.index()]
    }

    fn listed(port: u16, stage: Stage, inode: u64) -> Listed {
        Listed { port, stage, inode }
    }

    #[test]
    fn the_map_has_a_byte_for_each_port_of_tcp_and_then_of_udp() {
        let udp = Endpoint {
            protocol: Protocol::Udp,
            port: 80,
        };
        assert_eq!((HTTP.index(), udp.index()), (80, 65_616));
        for endpoint in [tcp(0), HTTP, tcp(65_535), udp] {
            assert_eq!(Endpoint::at(endpoint.index()), Some(endpoint));
        }
        assert_eq!(Endpoint::at(PORT_MAP_BYTES), None);
    }

    #[test]
    fn a_socket_has_an_entry_from_its_port_to_its_end() {
        let mut table = table();
        table.observe(1, Local::Unbound, tag(3));
        assert!(!table.is_settled(1));
        assert_eq!(table.take_changes(), []);
        table.observe(1, Local::Bound(HTTP), tag(3));
        assert!(table.is_settled(1));
        assert_eq!(table.take_changes(), [(80, 0x83)]);
        table.observe(1, Local::Bound(HTTP), tag(3));
        assert_eq!(table.take_changes(), [], "nothing new");
        table.observe(1, Local::Bound(HTTP), tag(5));
        assert_eq!(table.take_changes(), [(80, 0x85)], "another class");
        table.observe(1, Local::Bound(tcp(81)), tag(5));
        assert_eq!(
            table.take_changes(),
            [(80, 0), (81, 0x85)],
            "another port after a disconnect"
        );
        table.released(1);
        assert_eq!(table.take_changes(), [(81, 0)]);
        assert_eq!(table.ports(), 0);
    }

    #[test]
    fn a_socket_of_another_protocol_has_no_entry_and_is_not_looked_at_again() {
        let mut table = table();
        table.observe(1, Local::Portless, tag(3));
        assert!(table.is_settled(1));
        assert_eq!(table.take_changes(), []);
        table.closed(1);
        assert!(!table.has_tails());
    }

    #[test]
    fn accepted_connections_share_the_port_of_their_listener() {
        let mut table = table();
        for inode in 0..1000 {
            table.observe(inode, Local::Bound(HTTP), tag(3));
        }
        assert_eq!(table.take_changes(), [(80, 0x83)]);
        for inode in 1..1000 {
            table.released(inode);
        }
        assert_eq!(byte(&mut table, HTTP), 0x83);
        table.released(0);
        assert_eq!(table.take_changes(), [(80, 0)]);
    }

    #[test]
    fn the_first_rule_wins_a_shared_port_and_it_is_told_once() {
        let mut table = table();
        table.observe(1, Local::Bound(HTTP), tag(3));
        table.observe(2, Local::Bound(HTTP), tag(5));
        assert_eq!(table.take_changes(), [(80, 0x85)]);
        assert_eq!(table.take_conflicts(), [(HTTP, tag(5), tag(3))]);
        table.observe(3, Local::Bound(HTTP), tag(3));
        assert_eq!(byte(&mut table, HTTP), 0x85);
        assert_eq!(table.take_conflicts(), []);
        table.set_order(vec![tag(3), tag(5)]);
        assert_eq!(table.take_changes(), [(80, 0x83)], "the rules changed");
        assert_eq!(table.take_conflicts(), [(HTTP, tag(3), tag(5))]);
        table.released(1);
        table.released(3);
        assert_eq!(table.take_changes(), [(80, 0x85)]);
    }

    #[test]
    fn a_closing_connection_keeps_the_class_of_its_port() {
        let mut table = table();
        table.observe(1, Local::Bound(tcp(40_000)), tag(3));
        table.closed(1);
        assert!(table.has_tails());
        assert_eq!(table.take_changes(), [(40_000, 0x83)]);
        table.settle_tails([listed(40_000, Stage::Sending, 0)].into_iter());
        table.settle_tails([listed(40_000, Stage::Silent, 0)].into_iter());
        assert_eq!(byte(&mut table, tcp(40_000)), 0x83);
        table.settle_tails([listed(40_001, Stage::Silent, 0)].into_iter());
        assert_eq!(table.take_changes(), [(40_000, 0)]);
        assert!(!table.has_tails());
    }

    #[test]
    fn a_strangers_port_is_its_own_once_the_old_connections_are_silent() {
        for (stage, expected) in [(Stage::Sending, 0x83), (Stage::Silent, 0)] {
            let mut table = table();
            table.observe(1, Local::Bound(HTTP), tag(3));
            table.closed(1);
            let stranger = listed(80, Stage::Alive, 77);
            table.settle_tails([listed(80, stage, 0), stranger].into_iter());
            assert_eq!(byte(&mut table, HTTP), expected, "{stage:?}");
        }
    }

    #[test]
    fn a_new_socket_of_the_port_outlives_the_tail_of_an_old_one() {
        let mut table = table();
        table.observe(1, Local::Bound(HTTP), tag(3));
        table.closed(1);
        table.observe(2, Local::Bound(HTTP), tag(5));
        assert_eq!(byte(&mut table, HTTP), 0x85);
        table.settle_tails(std::iter::empty());
        assert_eq!(byte(&mut table, HTTP), 0x85);
        table.released(2);
        assert_eq!(byte(&mut table, HTTP), 0);
        assert_eq!(table.ports(), 0);
    }

    #[test]
    fn a_udp_port_is_free_at_the_next_look() {
        let dns = Endpoint {
            protocol: Protocol::Udp,
            port: 53,
        };
        let mut table = table();
        table.observe(1, Local::Bound(dns), tag(3));
        table.closed(1);
        assert_eq!(byte(&mut table, dns), 0x83);
        table.settle_tails([listed(53, Stage::Sending, 0)].into_iter());
        assert_eq!(byte(&mut table, dns), 0);
    }

    #[test]
    fn entries_of_a_predecessor_are_tails_where_no_socket_says_otherwise() {
        let mut table = table();
        table.observe(1, Local::Bound(HTTP), tag(3));
        for (index, byte) in [(80, 0x85), (81, 0x85), (82, 0x8e), (83, 5), (84, 0x80)] {
            table.adopt(index, byte);
        }
        let map = table.map();
        assert_eq!(map[80..85], [0x83, 0x85, 0, 0, 0]);
        table.settle_tails(std::iter::empty());
        assert_eq!(table.map()[80..85], [0x83, 0, 0, 0, 0]);
    }

    #[test]
    fn a_class_without_rules_keeps_no_tail() {
        let mut table = table();
        table.observe(1, Local::Bound(HTTP), tag(3));
        table.closed(1);
        table.set_order(vec![tag(5)]);
        assert_eq!(table.take_changes(), [(80, 0)]);
        assert_eq!(table.ports(), 0);
    }
}
