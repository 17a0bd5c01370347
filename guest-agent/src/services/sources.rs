// SPDX-License-Identifier: GPL-2.0-or-later
//! Reports a stream of a program that does not report itself: looks at what the program, or the
//! kernel, says of it, over and over. A fault is said once, and tried again later and later.

use crate::adapters::http;
use crate::domain::account::{Account, Counts};
use crate::domain::report::{Report, Source};
use crate::domain::vlc::{self, Address};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

pub const EVERY: Duration = Duration::from_millis(500);
/// A stream that says nothing for 10 s has ended.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const MOST_PASSWORD_BYTES: u64 = 1024;
const NO_RATE: &str = "it does not say how many frames a second there should be, so nobody sees that \
                       some are missing: give --rate";

/// The outcome of a look.
#[derive(Debug, PartialEq)]
pub enum Seen {
    Counts(Counts),
    /// As before.
    Nothing,
    /// It is there, and does not answer: its stream may stand still. Says why.
    Hangs(String),
    End,
}

/// Where numbers of a stream are from.
pub trait Look {
    /// Takes a bounded time. The error is one line for people, with the remedy.
    fn look(&mut self) -> Result<Seen, String>;
}

/// All that is outside of the decisions here.
pub trait World {
    fn now_ns(&self) -> u64;
    fn pause(&mut self, time: Duration);
    /// Gives a report to the agent.
    fn tell(&mut self, report: &Report) -> Result<(), String>;
    /// A line for people.
    fn say(&mut self, line: &str);
}

/// A stream as it is named to the agent.
pub struct Plan {
    pub name: String,
    pub source: Source,
    /// Desired frames per second; else the source says it.
    pub rate: Option<f64>,
    pub class: Option<String>,
}

impl Plan {
    /// Before the first look.
    pub fn first(&self) -> Report {
        self.report(&Counts::default(), 0)
    }

    fn report(&self, total: &Counts, pace: u64) -> Report {
        // A source that desires no frames, as one that is paused, is right.
        let rate = match total.rate {
            Some(0.0) => 0.0,
            other => self.rate.or(other).unwrap_or(0.0),
        };
        Report {
            name: self.name.clone(),
            rate,
            frames: total.frames,
            late: total.late,
            lost: total.lost,
            source: self.source,
            pace,
            round_trip: total.round_trip,
            class: self.class.clone(),
        }
    }
}

/// Reports each half second, until the source has ended.
pub fn run(source: &mut dyn Look, plan: &Plan, world: &mut dyn World) {
    let mut account = Account::default();
    let mut faults = Faults::default();
    let mut last = None;
    let mut is_rate_asked_for = false;
    loop {
        let outcome = match source.look() {
            Ok(Seen::Counts(counts)) => {
                let has_rate = plan.rate.or(counts.rate).is_some();
                if !has_rate
                    && counts.frames > 0
                    && !std::mem::replace(&mut is_rate_asked_for, true)
                {
                    world.say(NO_RATE);
                }
                let (total, pace) = account.add(world.now_ns(), &counts);
                world.tell(last.insert(plan.report(&total, pace)))
            }
            // Without a report the agent would take the stream for ended.
            Ok(Seen::Hangs(why)) => last
                .as_ref()
                .map_or(Ok(()), |last| world.tell(last))
                .and(Err(why)),
            Ok(Seen::Nothing) => Ok(()),
            Ok(Seen::End) => return,
            Err(error) => Err(error),
        };
        let time = faults.after(outcome, world);
        world.pause(time);
    }
}

/// A fault, and for how many tries it has lasted.
#[derive(Default)]
struct Faults {
    last: Option<String>,
    pause: Duration,
}

impl Faults {
    /// The time until the next try.
    fn after(&mut self, outcome: Result<(), String>, world: &mut dyn World) -> Duration {
        let Err(error) = outcome else {
            if self.last.take().is_some() {
                world.say("it reports again");
            }
            self.pause = EVERY;
            return EVERY;
        };
        if self.last.as_ref() != Some(&error) {
            world.say(&format!("{error}; it tries again"));
            self.last = Some(error);
        }
        self.pause = (self.pause * 2).clamp(EVERY, LONGEST_PAUSE);
        self.pause
    }
}

/// A VLC's HTTP interface.
pub struct Vlc {
    address: Address,
    password: Password,
}

pub enum Password {
    Known(String),
    /// Its first line. Read at each look, so that it can be put right meanwhile.
    File(PathBuf),
}

impl Password {
    fn read(&self) -> Result<String, String> {
        let path = match self {
            Password::Known(password) => return Ok(password.clone()),
            Password::File(path) => path,
        };
        let mut text = String::new();
        let read = File::open(path)
            .and_then(|file| file.take(MOST_PASSWORD_BYTES).read_to_string(&mut text));
        read.map_err(|error| format!("cannot read the password in {}: {error}", path.display()))?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}

impl Vlc {
    pub fn new(address: Address, password: Password) -> Vlc {
        Vlc { address, password }
    }

    fn asked(&self, within: Duration) -> Result<Seen, String> {
        let question = vlc::question(&self.address, &self.password.read()?);
        let named = |error: String| format!("VLC at {}: {error}", self.address);
        match http::ask(self.address.socket, question.as_bytes(), within) {
            Ok(answer) => vlc::answer(&answer).map(Seen::Counts).map_err(named),
            Err(error) => match error.kind() {
                io::ErrorKind::TimedOut => Ok(Seen::Hangs(named(error.to_string()))),
                io::ErrorKind::ConnectionRefused => Err(named(
                    "nobody listens there: see that VLC runs with --extraintf=http and this port"
                        .to_owned(),
                )),
                _ => Err(named(error.to_string())),
            },
        }
    }
}

impl Look for Vlc {
    fn look(&mut self) -> Result<Seen, String> {
        self.asked(ANSWER_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    struct Script(VecDeque<Result<Seen, String>>);

    impl Look for Script {
        fn look(&mut self) -> Result<Seen, String> {
            self.0.pop_front().unwrap_or(Ok(Seen::End))
        }
    }

    #[derive(Default)]
    struct Notes {
        now_ns: u64,
        pauses_ms: Vec<u128>,
        told: Vec<Report>,
        said: Vec<String>,
        refusal: Option<String>,
    }

    impl World for Notes {
        fn now_ns(&self) -> u64 {
            1 + self.now_ns
        }
        fn pause(&mut self, time: Duration) {
            self.pauses_ms.push(time.as_millis());
            self.now_ns += time.as_nanos() as u64;
        }
        fn tell(&mut self, report: &Report) -> Result<(), String> {
            self.told.push(report.clone());
            self.refusal.clone().map_or(Ok(()), Err)
        }
        fn say(&mut self, line: &str) {
            self.said.push(line.to_owned());
        }
    }

    fn plays(frames: u64, rate: f64) -> Result<Seen, String> {
        Ok(Seen::Counts(Counts {
            frames,
            bytes: frames * 100,
            rate: Some(rate),
            ..Counts::default()
        }))
    }

    fn noted(rate: Option<f64>, refusal: Option<&str>, looks: Vec<Result<Seen, String>>) -> Notes {
        let plan = Plan {
            name: "film".to_owned(),
            source: Source::Vlc,
            rate,
            class: None,
        };
        let mut notes = Notes {
            refusal: refusal.map(str::to_owned),
            ..Notes::default()
        };
        run(&mut Script(looks.into()), &plan, &mut notes);
        notes
    }

    #[test]
    fn each_look_is_reported() {
        let notes = noted(
            None,
            None,
            vec![plays(5, 25.0), Ok(Seen::Nothing), plays(30, 25.0)],
        );
        let numbers = notes
            .told
            .iter()
            .map(|told| (told.frames, told.rate, told.pace));
        // 2500 bytes in the two pauses between.
        assert_eq!(
            numbers.collect::<Vec<_>>(),
            [(5, 25.0, 0), (30, 25.0, 2500)]
        );
        assert_eq!(notes.told[0].source, Source::Vlc);
        assert_eq!(notes.pauses_ms, [500, 500, 500]);
        assert!(notes.said.is_empty());
    }

    #[test]
    fn the_rate_that_is_asked_for_goes_first_unless_nothing_plays() {
        let notes = noted(Some(50.0), None, vec![plays(5, 25.0), plays(5, 0.0)]);
        let rates = notes.told.iter().map(|told| told.rate);
        assert_eq!(rates.collect::<Vec<_>>(), [50.0, 0.0]);
    }

    #[test]
    fn a_fault_is_said_once_and_tried_again_later_and_later() {
        let fault = |text: &str| Err(text.to_owned());
        let mut looks: Vec<_> = (0..5).map(|_| fault("no VLC")).collect();
        looks.extend([fault("no password"), plays(1, 25.0), fault("no VLC")]);
        let notes = noted(None, None, looks);
        let said = [
            "no VLC; it tries again",
            "no password; it tries again",
            "it reports again",
            "no VLC; it tries again",
        ];
        assert_eq!(notes.said, said);
        assert_eq!(
            notes.pauses_ms,
            [500, 1000, 2000, 4000, 4000, 4000, 500, 1000]
        );
    }

    #[test]
    fn a_rate_that_nobody_says_is_asked_for_once() {
        let unknown = |frames| {
            Ok(Seen::Counts(Counts {
                frames,
                ..Counts::default()
            }))
        };
        // At the beginning a VLC has not read its film yet.
        let looks = || vec![unknown(0), plays(0, 25.0), unknown(5), unknown(9)];
        let said = noted(None, None, looks()).said;
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("--rate"), "{said:?}");
        assert!(noted(Some(25.0), None, looks()).said.is_empty());
    }

    #[test]
    fn a_source_that_hangs_keeps_its_stream() {
        let hangs = || Ok(Seen::Hangs("no answer".to_owned()));
        let notes = noted(None, None, vec![hangs(), plays(5, 25.0), hangs(), hangs()]);
        let frames = notes.told.iter().map(|told| told.frames);
        assert_eq!(frames.collect::<Vec<_>>(), [5, 5, 5]);
        let no_answer = "no answer; it tries again";
        assert_eq!(notes.said, [no_answer, "it reports again", no_answer]);
        assert_eq!(notes.pauses_ms, [500, 500, 1000, 2000]);
    }

    #[test]
    fn a_vlc_that_does_not_answer_hangs() {
        // The kernel takes the connection, and nobody reads.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let password = Password::Known(String::new());
        let seen = Vlc::new(url.parse().unwrap(), password).asked(Duration::from_millis(20));
        assert!(
            matches!(&seen, Ok(Seen::Hangs(why)) if why.contains(&url)),
            "{seen:?}"
        );
    }

    #[test]
    fn an_agent_that_refuses_is_a_fault_too() {
        let looks = vec![plays(1, 25.0), plays(2, 25.0)];
        let notes = noted(None, Some("no channel"), looks);
        assert_eq!(notes.said, ["no channel; it tries again"]);
        assert_eq!(notes.told.len(), 2);
    }

    #[test]
    fn the_password_is_the_files_first_line() {
        let path = std::env::temp_dir().join(format!("sluice-password-{}", std::process::id()));
        std::fs::write(&path, "se cret\n\n").unwrap();
        let password = Password::File(path.clone());
        assert_eq!(password.read().as_deref(), Ok("se cret"));
        std::fs::remove_file(&path).unwrap();
        let error = password.read().unwrap_err();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }

    #[test]
    fn nobody_at_the_port_is_said_with_the_remedy() {
        // Bound, and nobody listens.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let url = format!("http://{address}");
        let password = Password::Known(String::new());
        let error = Vlc::new(url.parse().unwrap(), password).look().unwrap_err();
        assert!(
            error.contains(&url) && error.contains("--extraintf=http"),
            "{error}"
        );
    }
}
