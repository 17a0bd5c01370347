// SPDX-License-Identifier: GPL-2.0-or-later
//! The PCI device `sluice-channel` (docs/specs/channel.md), reached from sysfs with no kernel
//! module: its BARs are files there. Each access to a register is an exit to the host; the
//! pages are plain memory.

use super::mapping::{Access, Mapping, in_order};
use crate::domain::channel_abi::{
    self as abi, Call, ClassEntry, HEADER_MAGIC, Status, StreamRecord, call, class, event, guest,
    host, register, result, server, service, stream,
};
use crate::domain::events::{Event, Source};
use crate::domain::servers::ServerRecord;
use crate::domain::tag::Tag;
use nix::fcntl::{Flock, FlockArg};
use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub const PCI_DEVICES: &str = "/sys/bus/pci/devices";
pub const REMEDY: &str = "on the host, attach this virtual machine anew (sluice attach)";
/// Reads of a record whose writer is at work; the host writes one within microseconds.
const MOST_READS: usize = 1000;
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

pub struct Device {
    /// Of the PCI bus, as `0000:00:05.0`.
    pub address: String,
    registers: Mapping,
    guest: Mapping,
    host: Mapping,
    folder: PathBuf,
    /// Addresses of the BARs, as sysfs tells them.
    places: String,
    /// Accesses to registers since the device was opened: exits.
    accesses: Cell<u64>,
}

/// A fast call's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub status: Status,
    pub value: u64,
}

/// The host's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub ring_tail: u32,
    pub epoch: u64,
    pub heartbeat_ns: u64,
    pub calls: u64,
    pub calls_refused: u64,
    pub deferred: u64,
    pub deferred_refused: u64,
    pub deferred_replaced: u64,
    pub granted: u32,
}

/// The folder of the device below `root`, if there is one.
pub fn find(root: &Path) -> Option<PathBuf> {
    let is_ours = |folder: &Path| {
        number(&folder.join("vendor")) == Some(u64::from(abi::VENDOR))
            && number(&folder.join("device")) == Some(u64::from(abi::DEVICE))
            && number(&folder.join("subsystem_vendor")) == Some(u64::from(abi::VENDOR))
            && number(&folder.join("subsystem_device")) == Some(u64::from(abi::SUBSYSTEM))
    };
    let entries = fs::read_dir(root).ok()?.flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    // In the same order at each look, if there are several.
    found.sort();
    found.into_iter().find(|folder| is_ours(folder))
}

fn number(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl Device {
    /// Enables and maps it. The error names the step that failed, and the remedy.
    pub fn open(folder: &Path) -> Result<Device, String> {
        let enable = folder.join("enable");
        let enabled = match number(&enable) {
            Some(0) => fs::write(&enable, "1"),
            _ => Ok(()),
        };
        let map = |bar: u32, bytes: usize, access: Access| {
            let path = folder.join(format!("resource{bar}"));
            Mapping::open(&path, bytes, access).map_err(|error| cannot_map(&path, &error))
        };
        let name = folder.file_name().unwrap_or_default();
        let device = Device {
            address: name.to_string_lossy().into_owned(),
            registers: map(0, abi::REGISTER_BYTES, Access::Write)?,
            guest: map(2, abi::GUEST_BYTES, Access::Write)?,
            host: map(4, abi::HOST_BYTES, Access::Read)?,
            folder: folder.to_owned(),
            places: places(folder),
            accesses: Cell::new(0),
        };
        if device.is_there() {
            return Ok(device);
        }
        // Firmware enables a device that is there at the boot; others are the kernel's to enable.
        Err(match enabled {
            Err(error) => format!(
                "cannot write 1 to {} ({error}): root with CAP_SYS_ADMIN may, and \
                 70-sluice-channel.rules lets udev do it",
                enable.display()
            ),
            Ok(()) => format!(
                "{} does not answer as a sluice-channel: its first register is {:#x}, and not {:#x}",
                folder.display(),
                device.register(register::MAGIC),
                abi::MAGIC
            ),
        })
    }

    /// Asks sysfs and the device itself: an exit. A mapping may outlive its device in the kernel,
    /// and lead nowhere or to another one.
    pub fn is_there(&self) -> bool {
        self.folder.exists()
            && places(&self.folder) == self.places
            && self.register(register::MAGIC) == abi::MAGIC
            && !self.is_gone()
            && self.host.bytes(host::MAGIC, HEADER_MAGIC.len()) == HEADER_MAGIC
    }

    /// Whether an access found that the device is no more.
    pub fn is_gone(&self) -> bool {
        self.registers.is_gone() || self.guest.is_gone() || self.host.is_gone()
    }

    /// The newest version that it speaks.
    pub fn version(&self) -> u32 {
        self.register(register::VERSION)
    }

    pub fn driver(&self) -> u32 {
        self.register(register::DRIVER)
    }

    /// Says which version this driver speaks, and whether the device took it.
    pub fn set_driver(&self, version: u32) -> bool {
        self.set_register(register::DRIVER, version);
        self.driver() == version
    }

    pub fn has_port_map(&self) -> bool {
        self.register(register::PORT_MAP) == 1
    }

    /// Puts the port map in force, or ends it.
    pub fn set_port_map(&self, is_in_force: bool) -> bool {
        self.set_register(register::PORT_MAP, u32::from(is_in_force));
        self.has_port_map() == is_in_force
    }

    pub fn calls_max(&self) -> u32 {
        self.register(register::CALLS_MAX)
    }

    /// Another after each reset of the device.
    pub fn epoch(&self) -> u64 {
        self.host.u64(host::EPOCH)
    }

    pub fn header(&self) -> Header {
        Header {
            version: self.host.u32(host::VERSION),
            ring_tail: self.host.u32(host::RING_TAIL),
            epoch: self.epoch(),
            heartbeat_ns: self.host.u64(host::HEARTBEAT_NS),
            calls: self.host.u64(host::CALLS),
            calls_refused: self.host.u64(host::CALLS_REFUSED),
            deferred: self.host.u64(host::DEFERRED),
            deferred_refused: self.host.u64(host::DEFERRED_REFUSED),
            deferred_replaced: self.host.u64(host::DEFERRED_REPLACED),
            granted: self.host.u32(host::GRANTED),
        }
    }

    pub fn port_map(&self) -> Vec<u8> {
        self.guest.bytes(guest::PORT_MAP, abi::PORT_MAP_BYTES)
    }

    pub fn set_port(&self, index: usize, byte: u8) {
        assert!(index < abi::PORT_MAP_BYTES, "index {index} of the port map");
        self.guest.set_u8(guest::PORT_MAP + index, byte);
    }

    /// (name, number, version) of each service.
    pub fn services(&self) -> Vec<(String, u32, u32)> {
        let entry = |index: usize| {
            let at = host::SERVICES + index * abi::SERVICE_BYTES;
            let name = self.host.bytes(at + service::NAME, abi::NAME_BYTES);
            let number = self.host.u32(at + service::NUMBER);
            let version = self.host.u32(at + service::VERSION);
            (number != 0).then(|| (abi::text(&name), number, version))
        };
        (0..abi::SERVICES).filter_map(entry).collect()
    }

    pub fn class_name(&self, tag: usize) -> String {
        let at = host::CLASS_NAMES + tag * abi::CLASS_NAME_BYTES;
        abi::text(&self.host.bytes(at, abi::CLASS_NAME_BYTES))
    }

    /// Nothing if the host was at work on it at each look.
    pub fn class_entry(&self, tag: usize, resource: usize) -> Option<ClassEntry> {
        let at = host::CLASSES + (tag * abi::RESOURCES + resource) * abi::CLASS_BYTES;
        let read = || ClassEntry {
            is_used: self.host.u8(at + class::USED) != 0,
            priority: self.host.u8(at + class::PRIORITY),
            is_limited: self.host.u8(at + class::LIMITED) != 0,
            bytes_per_second: self.host.u64(at + class::BYTES_PER_SECOND),
            operations_per_second: self.host.u64(at + class::OPERATIONS_PER_SECOND),
            tokens_bytes: self.host.u64(at + class::TOKENS_BYTES) as i64,
            backlog_bytes: self.host.u64(at + class::BACKLOG_BYTES),
            held_ns: self.host.u64(at + class::HELD_NS),
            bytes: self.host.u64(at + class::BYTES),
        };
        (0..MOST_READS).find_map(|_| {
            let before = self.host.u32(at + class::SEQ);
            in_order();
            let entry = read();
            in_order();
            (before % 2 == 0 && self.host.u32(at + class::SEQ) == before).then_some(entry)
        })
    }

    /// One exit. `slot` must be the caller's own; its sequence is counted on.
    pub fn fast_call(&self, slot: u32, wanted: Call) -> io::Result<Outcome> {
        assert!(slot < abi::CALL_SLOTS, "call slot {slot}");
        let results = host::RESULTS + slot as usize * abi::RESULT_BYTES;
        let sequence = self.host.u32(results + result::SEQUENCE).wrapping_add(1);
        let at = guest::CALLS + slot as usize * abi::CALL_BYTES;
        self.write_call(at, wanted, sequence, 0);
        in_order();
        self.set_register(register::CALL, slot);
        in_order();
        if self.host.u32(results + result::SEQUENCE) != sequence || self.is_gone() {
            return Err(io::Error::other(format!(
                "the device did not answer call {sequence} of slot {slot}: it was reset or unplugged"
            )));
        }
        Ok(Outcome {
            status: Status::of(self.host.u32(results + result::STATUS)),
            value: self.host.u64(results + result::VALUE),
        })
    }

    /// The ring of deferred calls, for this program alone as long as it has it.
    pub fn ring(&self) -> io::Result<Ring<'_>> {
        let file = self.guest.file.try_clone()?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        Ok(Ring {
            device: self,
            _lock: lock,
        })
    }

    pub fn ring_tail(&self) -> u32 {
        self.host.u32(host::RING_TAIL)
    }

    fn write_call(&self, at: usize, wanted: Call, key: u32, delay_ms: u32) {
        self.guest.set_u32(at + call::SERVICE, wanted.service);
        self.guest.set_u32(at + call::OPERATION, wanted.operation);
        self.guest.set_u32(at + call::KEY, key);
        self.guest.set_u32(at + call::DELAY_MS, delay_ms);
        for (index, argument) in wanted.arguments.iter().enumerate() {
            self.guest
                .set_u64(at + call::ARGUMENTS + 8 * index, *argument);
        }
    }

    pub fn write_stream(&self, index: usize, record: &StreamRecord) {
        self.rewrite(stream_at(index), |at| {
            let of = &self.guest;
            of.set_u8(at + stream::USED, 1);
            of.set_u8(at + stream::TAG, record.tag.map_or(0, Tag::number));
            of.set_u8(at + stream::SOURCE, record.source);
            of.set_u32(at + stream::RATE, record.rate_millihertz);
            of.set_u32(at + stream::LATE, record.late);
            of.set_u64(at + stream::FRAMES, record.frames);
            of.set_u64(at + stream::LAST_NS, record.last_ns);
            of.set_u32(at + stream::LOST, record.lost);
            of.set_u32(at + stream::PACE, record.pace_kib_per_second);
            for (place, byte) in record.name.iter().enumerate() {
                of.set_u8(at + stream::NAME + place, *byte);
            }
        });
    }

    /// Numbers of records that somebody has written.
    pub fn used_streams(&self) -> Vec<usize> {
        let is_used = |index: &usize| self.guest.u8(stream_at(*index) + stream::USED) != 0;
        (0..abi::STREAMS).filter(is_used).collect()
    }

    pub fn clear_stream(&self, index: usize) {
        self.rewrite(stream_at(index), |at| {
            self.guest.set_u8(at + stream::USED, 0);
        });
    }

    pub fn write_server(&self, index: usize, record: &ServerRecord) {
        self.rewrite(server_at(index), |at| {
            let of = &self.guest;
            of.set_u8(at + server::USED, 1);
            of.set_u8(at + server::TAG, record.tag.number());
            of.set_u16(at + server::PORT, record.port);
            of.set_u32(at + server::QUEUED, record.queued);
            of.set_u32(at + server::QUEUE_MAX, record.queue_max);
            of.set_u32(at + server::OPEN, record.open);
            of.set_u32(at + server::OPEN_MAX, 0);
        });
    }

    pub fn clear_server(&self, index: usize) {
        let at = server_at(index);
        if self.guest.u8(at + server::USED) != 0 {
            self.rewrite(at, |at| self.guest.set_u8(at + server::USED, 0));
        }
    }

    /// Of a record, which begins with its sequence: that is odd meanwhile, and another one
    /// afterwards.
    fn rewrite(&self, at: usize, write: impl FnOnce(usize)) {
        let odd = self.guest.u32(at) | 1;
        self.guest.set_u32(at, odd);
        in_order();
        write(at);
        in_order();
        self.guest.set_u32(at, odd.wrapping_add(1));
    }

    /// The folder in sysfs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether events raise the interrupt.
    pub fn set_events(&self, are_told: bool) {
        self.set_register(register::EVENTS, u32::from(are_told));
    }

    pub fn has_events(&self) -> bool {
        self.register(register::EVENTS) == 1
    }

    /// Clears the cause of the interrupt: before the patterns are taken, or one is missed.
    pub fn clear_interrupt(&self) {
        self.set_register(register::INTERRUPT, 1);
    }

    pub fn accesses(&self) -> u64 {
        self.accesses.get()
    }

    fn register(&self, offset: usize) -> u32 {
        self.accesses.set(self.accesses.get() + 1);
        self.registers.u32(offset)
    }

    fn set_register(&self, offset: usize, value: u32) {
        self.accesses.set(self.accesses.get() + 1);
        self.registers.set_u32(offset, value);
    }
}

impl Source for Device {
    fn head(&self) -> u64 {
        self.host.u64(host::EVENT_HEAD)
    }

    fn take_pattern(&self, priority: usize) -> u64 {
        assert!(priority < abi::PRIORITIES, "priority {priority}");
        self.guest.take_u64(guest::PATTERN + 8 * priority)
    }

    fn entry(&self, number: u64) -> Option<Event> {
        let slot = number.wrapping_sub(1) as usize % abi::EVENTS;
        let at = host::EVENTS + slot * abi::EVENT_BYTES;
        let before = self.host.u64(at + event::NUMBER);
        in_order();
        let read = Event {
            number,
            time_ns: self.host.u64(at + event::TIME_NS),
            kind: self.host.u8(at + event::KIND),
            tag: self.host.u8(at + event::TAG),
            resource: self.host.u8(at + event::RESOURCE),
            priority: self.host.u8(at + event::PRIORITY),
            datum: self.host.u64(at + event::DATUM),
        };
        in_order();
        let after = self.host.u64(at + event::NUMBER);
        (before == number && after == number).then_some(read)
    }
}

pub struct Ring<'a> {
    device: &'a Device,
    _lock: Flock<fs::File>,
}

impl Ring<'_> {
    /// Puts a call into the ring: no exit. How many were put there before.
    pub fn defer(&self, wanted: Call) -> u32 {
        let pages = &self.device.guest;
        let head = pages.u32(guest::RING_HEAD);
        let at = guest::RING + (head % abi::RING_CALLS) as usize * abi::CALL_BYTES;
        self.device
            .write_call(at, wanted, wanted.key, wanted.delay_ms);
        in_order();
        pages.set_u32(guest::RING_HEAD, head.wrapping_add(1));
        head
    }
}

fn stream_at(index: usize) -> usize {
    assert!(index < abi::STREAMS, "stream record {index}");
    guest::STREAMS + index * abi::STREAM_BYTES
}

fn server_at(index: usize) -> usize {
    assert!(index < abi::SERVERS, "server record {index}");
    guest::SERVERS + index * abi::SERVER_BYTES
}

fn places(folder: &Path) -> String {
    fs::read_to_string(folder.join("resource")).unwrap_or_default()
}

fn cannot_map(path: &Path, error: &io::Error) -> String {
    let lockdown = fs::read_to_string(LOCKDOWN).unwrap_or_default();
    let remedy = if error.raw_os_error() == Some(libc::EPERM) && !lockdown.contains("[none]") {
        ": the kernel is locked down, as it is after a secure boot"
    } else if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        ": the service must have /sys/devices writable (ReadWritePaths= of its unit)"
    } else {
        ": root may"
    };
    format!("cannot map {} ({error}){remedy}", path.display())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// A folder as sysfs has it for a device, with plain files as its memory.
    pub struct FakeDevice {
        pub root: PathBuf,
    }

    impl FakeDevice {
        pub fn new(name: &str) -> FakeDevice {
            let root =
                std::env::temp_dir().join(format!("sluice-pci-{name}-{}", std::process::id()));
            let device = FakeDevice { root };
            device.plug();
            device
        }

        pub fn folder(&self) -> PathBuf {
            self.root.join("0000:00:05.0")
        }

        pub fn plug(&self) {
            let other = self.root.join("0000:00:01.0");
            fs::create_dir_all(&other).unwrap();
            fs::write(other.join("vendor"), "0x1af4\n").unwrap();
            fs::write(other.join("device"), "0x1041\n").unwrap();
            let folder = self.folder();
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in [
                ("vendor", "0x1af4\n"),
                ("device", "0x10fc\n"),
                ("subsystem_vendor", "0x1af4\n"),
                ("subsystem_device", "0x5c1c\n"),
                ("enable", "0\n"),
            ] {
                fs::write(folder.join(name), text).unwrap();
            }
            for (bar, bytes) in [
                (0, abi::REGISTER_BYTES),
                (2, abi::GUEST_BYTES),
                (4, abi::HOST_BYTES),
            ] {
                let file = fs::File::create(folder.join(format!("resource{bar}"))).unwrap();
                file.set_len(bytes as u64).unwrap();
            }
            self.set(0, register::MAGIC, &abi::MAGIC.to_le_bytes());
            self.set(0, register::VERSION, &abi::VERSION.to_le_bytes());
            self.set(4, host::MAGIC, HEADER_MAGIC);
            self.set(4, host::EPOCH, &1_u64.to_le_bytes());
        }

        /// Writes to a BAR as the host would.
        pub fn set(&self, bar: u32, offset: usize, bytes: &[u8]) {
            let path = self.folder().join(format!("resource{bar}"));
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(bytes, offset as u64).unwrap();
        }

        pub fn get(&self, bar: u32, offset: usize, count: usize) -> Vec<u8> {
            let path = self.folder().join(format!("resource{bar}"));
            let mut bytes = vec![0; count];
            let file = fs::File::open(path).unwrap();
            file.read_exact_at(&mut bytes, offset as u64).unwrap();
            bytes
        }

        pub fn unplug(&self) {
            for bar in [0, 2, 4] {
                let path = self.folder().join(format!("resource{bar}"));
                let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(0).unwrap();
            }
            fs::remove_dir_all(self.folder()).unwrap();
        }
    }

    impl Drop for FakeDevice {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn the_device_is_known_by_all_its_numbers() {
        let fake = FakeDevice::new("find");
        assert_eq!(find(&fake.root), Some(fake.folder()));
        fs::write(fake.folder().join("subsystem_device"), "0x1100\n").unwrap();
        assert_eq!(find(&fake.root), None);
        assert_eq!(find(Path::new("/nonexistent")), None);
    }

    #[test]
    fn it_is_enabled_and_mapped() {
        let fake = FakeDevice::new("open");
        let device = Device::open(&fake.folder()).unwrap();
        assert_eq!(fs::read(fake.folder().join("enable")).unwrap(), b"1");
        assert_eq!((device.version(), device.epoch()), (1, 1));
        assert!(device.set_driver(1) && device.set_port_map(true));
        device.set_port(65_536 + 53, 0x83);
        assert_eq!(fake.get(2, guest::PORT_MAP + 65_536 + 53, 1), [0x83]);
        let before = device.accesses();
        device.set_port(80, 0x81);
        assert_eq!(device.accesses(), before, "a page is no register");
    }

    #[test]
    fn another_device_of_the_number_is_refused() {
        let fake = FakeDevice::new("magic");
        fake.set(0, register::MAGIC, &[1, 2, 3, 4]);
        let error = Device::open(&fake.folder()).err().unwrap();
        assert!(error.contains("0x4030201, and not 0x48434c53"), "{error}");
    }

    #[test]
    fn a_device_that_cannot_be_mapped_is_named() {
        let fake = FakeDevice::new("unmapped");
        fs::remove_file(fake.folder().join("resource2")).unwrap();
        let error = Device::open(&fake.folder()).err().unwrap();
        assert!(error.contains("cannot map"), "{error}");
        assert!(error.contains("resource2"), "{error}");
    }

    #[test]
    fn an_unplugged_device_is_noticed() {
        let fake = FakeDevice::new("unplug");
        let device = Device::open(&fake.folder()).unwrap();
        fake.unplug();
        device.set_port(80, 0x81);
        assert!(device.is_gone());
        assert!(!device.is_there());
    }

    #[test]
    fn a_device_that_sysfs_shows_elsewhere_is_not_the_mapped_one() {
        let fake = FakeDevice::new("moved");
        let resource = fake.folder().join("resource");
        fs::write(&resource, "0xfebd4000 0xfebd4fff 0x40200\n").unwrap();
        let device = Device::open(&fake.folder()).unwrap();
        assert!(device.is_there());
        fs::write(&resource, "0xfebd5000 0xfebd5fff 0x40200\n").unwrap();
        assert!(!device.is_there());
        assert!(!device.is_gone());
    }

    #[test]
    fn a_device_that_does_not_answer_a_call_is_an_error() {
        let fake = FakeDevice::new("silent");
        let device = Device::open(&fake.folder()).unwrap();
        let error = device.fast_call(3, Call::default()).unwrap_err();
        assert!(error.to_string().contains("slot 3"), "{error}");
        assert_eq!(fake.get(0, register::CALL, 4), [3, 0, 0, 0]);
    }

    #[test]
    fn deferred_calls_are_written_before_they_are_counted() {
        let fake = FakeDevice::new("defer");
        let device = Device::open(&fake.folder()).unwrap();
        fake.set(2, guest::RING_HEAD, &u32::MAX.to_le_bytes());
        let wanted = Call {
            service: 1,
            operation: 2,
            key: 3,
            delay_ms: 4,
            arguments: [5, 0, 0, 0, 0, 6],
        };
        let before = device.accesses();
        let ring = device.ring().unwrap();
        assert_eq!(ring.defer(wanted), u32::MAX);
        assert_eq!(ring.defer(wanted), 0);
        assert_eq!(device.accesses(), before, "no exit");
        assert_eq!(fake.get(2, guest::RING_HEAD, 4), [1, 0, 0, 0]);
        let first = fake.get(2, guest::RING + 255 * abi::CALL_BYTES, abi::CALL_BYTES);
        assert_eq!(
            first[..17],
            [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5]
        );
        assert_eq!(first[56], 6);
    }

    #[test]
    fn a_class_entry_that_is_being_written_is_not_read() {
        let fake = FakeDevice::new("entry");
        let device = Device::open(&fake.folder()).unwrap();
        let at = host::CLASSES + (2 * abi::RESOURCES + 1) * abi::CLASS_BYTES;
        fake.set(4, at + class::USED, &[1, 7, 1]);
        fake.set(4, at + class::BYTES_PER_SECOND, &1000_u64.to_le_bytes());
        fake.set(4, at + class::TOKENS_BYTES, &(-5_i64).to_le_bytes());
        let entry = device.class_entry(2, 1).unwrap();
        assert!(entry.is_used && entry.is_limited);
        assert_eq!(
            (entry.priority, entry.bytes_per_second, entry.tokens_bytes),
            (7, 1000, -5)
        );
        fake.set(4, at + class::SEQ, &[1]);
        assert_eq!(device.class_entry(2, 1), None);
    }

    #[test]
    fn an_event_that_is_being_written_is_not_read() {
        let fake = FakeDevice::new("event");
        let device = Device::open(&fake.folder()).unwrap();
        // The last of the ring.
        let at = host::EVENTS + 255 * abi::EVENT_BYTES;
        fake.set(4, at + event::NUMBER, &256_u64.to_le_bytes());
        fake.set(4, at + event::KIND, &[4, 15, 3, 2]);
        fake.set(4, at + event::DATUM, &77_u64.to_le_bytes());
        let read = device.entry(256).unwrap();
        assert_eq!(
            (read.kind, read.tag, read.resource, read.priority),
            (4, 15, 3, 2)
        );
        assert_eq!(read.datum, 77);
        assert_eq!(device.entry(512), None, "a later one of its place");
        fake.set(4, at + event::NUMBER, &[0, 0]);
        assert_eq!(device.entry(256), None);
        fake.set(2, guest::PATTERN + 24, &[1, 0, 0, 0, 0, 0, 0, 0x80]);
        assert_eq!(device.take_pattern(3), 1 << 63 | 1);
        assert_eq!(fake.get(2, guest::PATTERN + 24, 8), [0; 8]);
    }

    #[test]
    fn a_stream_record_is_even_when_it_is_whole() {
        let fake = FakeDevice::new("stream");
        let device = Device::open(&fake.folder()).unwrap();
        let mut name = [0; abi::NAME_BYTES];
        name[..4].copy_from_slice(b"film");
        let record = StreamRecord {
            tag: Tag::new(3),
            source: 1,
            rate_millihertz: 25_000,
            frames: 77,
            last_ns: 88,
            late: 1,
            lost: 2,
            pace_kib_per_second: 9,
            name,
        };
        device.write_stream(63, &record);
        let at = guest::STREAMS + 63 * abi::STREAM_BYTES;
        let bytes = fake.get(2, at, abi::STREAM_BYTES);
        assert_eq!(bytes[..12], [2, 0, 0, 0, 1, 3, 1, 0, 0xa8, 0x61, 0, 0]);
        let numbers = (bytes[16], bytes[24], bytes[32], bytes[36]);
        assert_eq!(numbers, (77, 88, 2, 9));
        assert_eq!(bytes[40..45], *b"film\0");
        device.clear_stream(63);
        assert_eq!(fake.get(2, at, 5), [4, 0, 0, 0, 0]);
    }
}
