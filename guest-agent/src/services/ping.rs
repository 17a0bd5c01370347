// SPDX-License-Identifier: GPL-2.0-or-later
//! Times of answers that come to a program that sleeps: of an upcall, by the interrupt, and of a
//! message over another line to the host, for comparison.

use crate::adapters::channel::Device;
use crate::adapters::clock::Clock;
use crate::adapters::interrupt::Interrupt;
use crate::domain::channel_abi::{Call, PRIORITIES, Status, event, service};
use crate::domain::events::Source;
use crate::domain::spread::Spread;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

const ANSWER_WITHIN_MS: u16 = 10_000;
/// After an interrupt was cleared its line falls a moment later, and may wake once more.
const QUIET_MS: u16 = 2;
/// Wakings in a row that are not of ours before a ping gives up.
const MOST_OTHERS: u32 = 1000;
/// Calls beyond the host's limit in a row, with a rest after each.
const MOST_BUSY: u32 = 5000;
/// Of the class default, which is always granted.
const TAG: u64 = 0;

#[derive(Debug, Serialize)]
pub struct Upcalls {
    pub count: u64,
    /// From the call that asks for an event until the interrupt has woken this program.
    pub woken: Option<Spread>,
    /// Accesses to registers: exits. The kernel's and this program's accesses to the device's
    /// configuration are exits, too, and not in this count.
    pub register_accesses: u64,
}

#[derive(Debug, Serialize)]
pub struct Messages {
    pub count: u64,
    /// From the writing of a message until the same has come back.
    pub round_trip: Option<Spread>,
}

/// Asks for `count` events, one after the other. Events of others meanwhile stay in the ring;
/// their bits in the patterns are taken.
pub fn ping_upcall(device: &Device, slot: u32, count: u64) -> io::Result<Upcalls> {
    let mut interrupt = Interrupt::open(device.folder());
    if let Some(why) = interrupt.why_not() {
        return Err(io::Error::other(format!(
            "upcalls are timed by the interrupt, and there is none: {why}"
        )));
    }
    let were_told = device.has_events();
    device.set_events(true);
    device.clear_interrupt();
    let pinged = ping_upcall_by(&mut interrupt, device, slot, count);
    device.set_events(were_told);
    pinged
}

fn ping_upcall_by(
    interrupt: &mut Interrupt,
    device: &Device,
    slot: u32,
    count: u64,
) -> io::Result<Upcalls> {
    let clock = Clock::start();
    let accesses = device.accesses();
    let mut times_ns = Vec::new();
    let mut busy_in_row = 0;
    while (times_ns.len() as u64) < count {
        let word = times_ns.len() as u64;
        settle(interrupt, device)?;
        let seen = device.head();
        let began_ns = clock.now_ns();
        let outcome = device.fast_call(slot, the_echo(word))?;
        match outcome.status {
            Status::Ok => busy_in_row = 0,
            Status::Busy if busy_in_row < MOST_BUSY => {
                busy_in_row += 1;
                continue;
            }
            Status::Unknown => {
                return Err(io::Error::other(
                    "this host makes no echo: its QEMU is an earlier one",
                ));
            }
            _ => {
                let text = format!("echo {word} was answered with {outcome:?}");
                return Err(io::Error::other(text));
            }
        }
        if !is_readable(interrupt.watched(), ANSWER_WITHIN_MS)? {
            let text = format!("the event of echo {word} has not interrupted in 10 s");
            return Err(io::Error::other(text));
        }
        times_ns.push(clock.now_ns() - began_ns);
        let is_ours = |number| {
            let found = device.entry(number);
            found.is_some_and(|found| found.kind == event::ECHO && found.datum == word)
        };
        if !(seen + 1..=device.head()).any(is_ours) {
            let text = format!("the event of echo {word} is not in the ring");
            return Err(io::Error::other(text));
        }
    }
    Ok(Upcalls {
        count,
        woken: Spread::of(times_ns),
        register_accesses: device.accesses() - accesses,
    })
}

/// Until no interrupt is left, and the next event interrupts.
fn settle(interrupt: &mut Interrupt, device: &Device) -> io::Result<()> {
    for _ in 0..MOST_OTHERS {
        // A pattern that is not 0 would keep the event from raising the interrupt.
        for priority in 0..PRIORITIES {
            device.take_pattern(priority);
        }
        interrupt.take(device);
        interrupt.allow();
        if let Some(why) = interrupt.why_not() {
            return Err(io::Error::other(why.to_owned()));
        }
        if !is_readable(interrupt.watched(), QUIET_MS)? {
            return Ok(());
        }
    }
    Err(io::Error::other(
        "the interrupt does not rest: other events come all the time",
    ))
}

fn the_echo(word: u64) -> Call {
    let mut call = Call {
        service: service::EVENTS,
        operation: service::ECHO,
        ..Call::default()
    };
    call.arguments[0] = TAG;
    call.arguments[1] = word;
    call
}

/// Sends `count` messages of 8 bytes, one after the other, to a port that sends them back.
pub fn ping_port(path: &Path, count: u64) -> io::Result<Messages> {
    let named = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
    let mut port = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(named)?;
    let clock = Clock::start();
    let mut times_ns = Vec::new();
    for word in 0..count {
        let began_ns = clock.now_ns();
        exchange(&mut port, word).map_err(named)?;
        times_ns.push(clock.now_ns() - began_ns);
    }
    Ok(Messages {
        count,
        round_trip: Spread::of(times_ns),
    })
}

fn exchange(port: &mut File, word: u64) -> io::Result<()> {
    port.write_all(&word.to_le_bytes())?;
    let mut answer = [0; 8];
    let mut have = 0;
    while have < answer.len() {
        if !is_readable(Some(port.as_fd()), ANSWER_WITHIN_MS)? {
            return Err(io::Error::other("no answer in 10 s"));
        }
        match port.read(&mut answer[have..])? {
            0 => return Err(io::Error::other("the host's end is closed")),
            more => have += more,
        }
    }
    if answer != word.to_le_bytes() {
        return Err(io::Error::other(format!(
            "the host's end does not send back what it gets: {answer:?} for message {word}"
        )));
    }
    Ok(())
}

fn is_readable(file: Option<BorrowedFd>, within_ms: u16) -> io::Result<bool> {
    let file = file.ok_or_else(|| io::Error::other("there is no interrupt any more"))?;
    let mut fds = [PollFd::new(file, PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::from(within_ms))? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::channel::tests::FakeDevice;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn upcalls_without_an_interrupt_are_an_error_that_says_why() {
        let fake = FakeDevice::new("ping-no-line");
        let device = Device::open(&fake.folder()).unwrap();
        let error = ping_upcall(&device, 63, 1).unwrap_err().to_string();
        assert!(error.contains("driver_override"), "{error}");
    }

    #[test]
    fn a_message_must_come_back_as_it_was() {
        let (ours, mut host) = UnixStream::pair().unwrap();
        let mut port = File::from(OwnedFd::from(ours));
        host.write_all(&7_u64.to_le_bytes()).unwrap();
        exchange(&mut port, 7).unwrap();
        host.write_all(&7_u64.to_le_bytes()).unwrap();
        let error = exchange(&mut port, 8).unwrap_err().to_string();
        assert!(error.contains("for message 8"), "{error}");
        drop(host);
        assert!(exchange(&mut port, 9).is_err());
    }

    #[test]
    fn a_port_that_is_not_there_is_named() {
        let error = ping_port(Path::new("/nonexistent/port"), 1).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/port"), "{error}");
    }
}
