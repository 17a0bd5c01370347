// SPDX-License-Identifier: GPL-2.0-or-later
//! The interrupt of the device `sluice-channel`, by the kernel's module `uio_pci_generic`:
//! a file that can be read once an event came. The module keeps the interrupt off until a write
//! to the device's configuration allows it again. Where the module is not, the counter of
//! events is looked at instead.

use super::channel::Device;
use crate::domain::events::Source;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

const MODULE: &str = "uio_pci_generic";
/// Between looks at the counter, without an interrupt.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Of the configuration: the upper byte of the command.
const COMMAND_HIGH: u64 = 5;
/// Of that byte: the interrupt is off.
const INTX_OFF: u8 = 1 << 2;

pub struct Interrupt {
    /// The error says why there is no interrupt.
    line: Result<Line, String>,
}

struct Line {
    count: File,
    configuration: File,
}

impl Interrupt {
    /// Of the device with this folder in sysfs. Gives it to the module if no driver has it.
    pub fn open(folder: &Path) -> Interrupt {
        let line = Line::open(folder, Path::new("/dev"));
        Interrupt { line }
    }

    /// Says why events are found by looks alone.
    pub fn why_not(&self) -> Option<&str> {
        self.line.as_ref().err().map(String::as_str)
    }

    /// To wait for. Without it `LOOK_EVERY` is due.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().ok().map(|line| line.count.as_fd())
    }

    /// Takes the interrupt, if there was one, and clears its cause. Events are to be read after
    /// it and before `allow`. An error of the file, as of a device that was unplugged, ends the
    /// interrupt.
    pub fn take(&mut self, device: &Device) -> bool {
        let Ok(line) = &mut self.line else {
            return false;
        };
        match line.count.read(&mut [0; 4]) {
            Ok(_) => {
                device.clear_interrupt();
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.line = Err(format!("its interrupt ended ({error})")),
        }
        false
    }

    /// Lets the next event interrupt.
    pub fn allow(&mut self) {
        let allowed = self.line.as_ref().map(Line::allow);
        if let Ok(Err(error)) = allowed {
            self.line = Err(format!("cannot write its configuration ({error})"));
        }
    }

    /// Waits until there is a newer event than number `seen`. False after `within`.
    pub fn wait(&mut self, device: &Device, seen: u64, within: Duration) -> io::Result<bool> {
        let began = Instant::now();
        loop {
            if device.head() != seen {
                return Ok(true);
            }
            let left = within.saturating_sub(began.elapsed());
            if left.is_zero() || device.is_gone() {
                return Ok(false);
            }
            let Some(file) = self.watched() else {
                std::thread::sleep(left.min(LOOK_EVERY));
                continue;
            };
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
            let mut fds = [PollFd::new(file, PollFlags::POLLIN)];
            match poll(&mut fds, timeout.unwrap_or(PollTimeout::MAX)) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => {
                    self.take(device);
                    self.allow();
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Line {
    fn open(folder: &Path, dev: &Path) -> Result<Line, String> {
        let name = match uio_name(folder) {
            Some(name) => name,
            None => {
                claim(folder)?;
                uio_name(folder).ok_or_else(|| {
                    format!("the kernel's module {MODULE} is not loaded: modprobe {MODULE}")
                })?
            }
        };
        let open = |path: &Path| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(path)
                .map_err(|error| format!("cannot open {} ({error}): root may", path.display()))
        };
        let line = Line {
            count: open(&dev.join(name))?,
            configuration: open(&folder.join("config"))?,
        };
        line.allow()
            .map_err(|error| format!("cannot write its configuration ({error})"))?;
        Ok(line)
    }

    fn allow(&self) -> io::Result<()> {
        let mut byte = [0];
        self.configuration.read_exact_at(&mut byte, COMMAND_HIGH)?;
        if byte[0] & INTX_OFF != 0 {
            let on = [byte[0] & !INTX_OFF];
            self.configuration.write_all_at(&on, COMMAND_HIGH)?;
        }
        Ok(())
    }
}

/// As `uio0`.
fn uio_name(folder: &Path) -> Option<std::ffi::OsString> {
    let mut entries = fs::read_dir(folder.join("uio")).ok()?.flatten();
    entries.next().map(|entry| entry.file_name())
}

/// Asks the kernel to give the device to the module, now or when it is loaded.
fn claim(folder: &Path) -> Result<(), String> {
    if let Ok(driver) = fs::read_link(folder.join("driver")) {
        let name = driver.file_name().unwrap_or_default().to_string_lossy();
        return Err(format!(
            "the driver {name} has the device, and not {MODULE}"
        ));
    }
    let write = |path: &Path, text: &[u8]| {
        let opened = OpenOptions::new().write(true).open(path);
        opened
            .and_then(|mut file| file.write_all(text))
            .map_err(|error| format!("cannot write to {} ({error}): root may", path.display()))
    };
    write(&folder.join("driver_override"), MODULE.as_bytes())?;
    let address = folder.file_name().unwrap_or_default();
    let bus = folder.parent().and_then(Path::parent);
    let probe = bus.unwrap_or(folder).join("drivers_probe");
    write(&probe, address.as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::channel::tests::FakeDevice;
    use crate::domain::channel_abi::{host, register};

    /// With a file in place of the module's, which can always be read.
    fn wired(name: &str) -> (FakeDevice, Interrupt) {
        let fake = FakeDevice::new(name);
        fs::create_dir_all(fake.folder().join("uio/uio7")).unwrap();
        fs::write(fake.folder().join("config"), [0; 64]).unwrap();
        fs::write(fake.root.join("uio7"), [0; 64]).unwrap();
        let line = Line::open(&fake.folder(), &fake.root);
        (fake, Interrupt { line })
    }

    #[test]
    fn an_interrupt_is_taken_and_allowed_again() {
        let (fake, mut interrupt) = wired("wired");
        assert_eq!(interrupt.why_not(), None);
        let device = Device::open(&fake.folder()).unwrap();
        let config = fake.folder().join("config");
        // As the module leaves it, beside another bit.
        fs::write(&config, [0, 0, 0, 0, 0, 0x05]).unwrap();
        assert!(interrupt.take(&device));
        assert_eq!(fake.get(0, register::INTERRUPT, 1), [1]);
        interrupt.allow();
        assert_eq!(fs::read(&config).unwrap()[5], 0x01);
    }

    #[test]
    fn a_newer_event_ends_the_wait() {
        let (fake, mut interrupt) = wired("wait");
        let device = Device::open(&fake.folder()).unwrap();
        fake.set(4, host::EVENT_HEAD, &[3]);
        let forever = Duration::from_secs(3600);
        assert!(interrupt.wait(&device, 2, forever).unwrap());
        assert!(!interrupt.wait(&device, 3, Duration::ZERO).unwrap());
        let mut looks = Interrupt {
            line: Err("no module".to_owned()),
        };
        assert!(looks.wait(&device, 2, forever).unwrap());
        assert!(!looks.wait(&device, 3, Duration::from_millis(1)).unwrap());
    }

    #[test]
    fn a_device_of_no_driver_is_claimed_for_the_module() {
        let fake = FakeDevice::new("claim");
        let probe = fake.root.parent().unwrap().join("drivers_probe");
        let why = Interrupt::open(&fake.folder())
            .why_not()
            .unwrap()
            .to_owned();
        assert!(why.contains("driver_override"), "{why}");
        fs::write(fake.folder().join("driver_override"), "").unwrap();
        let why = Interrupt::open(&fake.folder())
            .why_not()
            .unwrap()
            .to_owned();
        assert!(why.contains(&probe.display().to_string()), "{why}");
        let claimed = fs::read_to_string(fake.folder().join("driver_override")).unwrap();
        assert_eq!(claimed, MODULE);
        std::os::unix::fs::symlink("/x/vfio-pci", fake.folder().join("driver")).unwrap();
        let why = Interrupt::open(&fake.folder())
            .why_not()
            .unwrap()
            .to_owned();
        assert_eq!(
            why,
            format!("the driver vfio-pci has the device, and not {MODULE}")
        );
    }
}
