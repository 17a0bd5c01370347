// SPDX-License-Identifier: GPL-2.0-or-later
//! `sluice-agent report`: a report from the command line, or reports of what others say.

use clap::Args;
use sluice_agent::adapters::clock::monotonic_ns;
use sluice_agent::adapters::report;
use sluice_agent::domain::pace::MOST_DESIRED_BPS;
use sluice_agent::domain::report::{Report, Source};
use sluice_agent::domain::vlc;
use sluice_agent::services::pace::Sockets;
use sluice_agent::services::progress::Ffmpeg;
use sluice_agent::services::sources::{self, Look, Password, Vlc};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const EXAMPLES: &str = "\
Examples:
  sluice-agent report --name film --rate 25 --frames 1500 --late 2
                                                  report once
  sluice-agent report --name film --vlc http://127.0.0.1:8080 --password-file secret
                                                  report what a VLC says, over and over
  ffmpeg … -progress pipe:1 | sluice-agent report --name film --rate 25 --ffmpeg-progress -
                                                  report what an ffmpeg says
  sluice-agent report --name film --sockets 4711 --desired 875000
                                                  report what a program sends or receives";

#[derive(Args)]
#[command(group = clap::ArgGroup::new("numbers").required(true).args(["frames", "vlc", "ffmpeg_progress", "sockets"]))]
pub struct Options {
    /// 1 to 24 printable characters
    #[arg(long)]
    name: String,
    /// Desired frames per second. Not needed where VLC says it
    #[arg(long, required_unless_present_any = ["vlc", "sockets"])]
    rate: Option<f64>,
    /// Frames shown or sent since the stream began
    #[arg(long)]
    frames: Option<u64>,
    /// Of these, frames that were late
    #[arg(long, default_value_t = 0, requires = "frames")]
    late: u64,
    /// Frames lost since the stream began
    #[arg(long, default_value_t = 0, requires = "frames")]
    lost: u64,
    /// Report twice a second the statistics of the VLC with this HTTP interface, as
    /// http://127.0.0.1:8080. SLUICE_VLC_PASSWORD is its password
    #[arg(long, value_name = "URL")]
    vlc: Option<vlc::Address>,
    /// A file whose first line is the password
    #[arg(long, value_name = "FILE", requires = "vlc")]
    password_file: Option<PathBuf>,
    /// Report twice a second what an ffmpeg writes by -progress to this file, named pipe or,
    /// with -, this program's standard input
    #[arg(long, value_name = "FILE")]
    ffmpeg_progress: Option<PathBuf>,
    /// Report twice a second what the TCP connections of this process do
    #[arg(long, value_name = "PID", requires = "desired", conflicts_with = "rate",
          value_parser = clap::value_parser!(i32).range(1..))]
    sockets: Option<i32>,
    /// The rate that these connections should have together
    #[arg(long, value_name = "BYTES_PER_SECOND", requires = "sockets",
          value_parser = clap::value_parser!(u64).range(1..=MOST_DESIRED_BPS))]
    desired: Option<u64>,
    /// The class, which must be this process's own, unless root reports
    #[arg(long)]
    class: Option<String>,
    /// The socket of the agent
    #[arg(long, value_name = "PATH", default_value = report::DEFAULT_PATH)]
    socket: PathBuf,
}

pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let (source, mut look): (_, Box<dyn Look>) = if let Some(address) = &options.vlc {
        let password = match &options.password_file {
            Some(path) => Password::File(path.clone()),
            None => Password::Known(std::env::var("SLUICE_VLC_PASSWORD").unwrap_or_default()),
        };
        (Source::Vlc, Box::new(Vlc::new(address.clone(), password)))
    } else if let Some(path) = &options.ffmpeg_progress {
        let rate = options.rate.unwrap_or(0.0);
        (Source::Ffmpeg, Box::new(Ffmpeg::new(path.clone(), rate)))
    } else if let Some(pid) = options.sockets {
        let sockets = Sockets::new(pid, options.desired.unwrap_or(1))
            .map_err(|error| format!("cannot look at process {pid} ({error})"))?;
        (Source::Socket, Box::new(sockets))
    } else {
        return give_report(&options.socket, &one_report(options));
    };
    let plan = sources::Plan {
        name: options.name.clone(),
        source,
        rate: options.rate,
        class: options.class.clone(),
    };
    // Now, as it would be wrong at each try.
    Report::parse(&serde_json::to_vec(&plan.first())?)?;
    sources::run(look.as_mut(), &plan, &mut Reporter(&options.socket));
    Ok(())
}

fn one_report(options: &Options) -> Report {
    Report {
        name: options.name.clone(),
        rate: options.rate.unwrap_or(0.0),
        frames: options.frames.unwrap_or(0),
        late: options.late,
        lost: options.lost,
        source: Source::Program,
        pace: 0,
        round_trip: None,
        class: options.class.clone(),
    }
}

fn give_report(socket: &Path, report: &Report) -> Result<(), Box<dyn Error>> {
    let text = serde_json::to_vec(report)?;
    Report::parse(&text)?;
    super::ask_agent(socket, &text).map(|_| ())
}

/// Reports to the agent with this socket.
struct Reporter<'a>(&'a Path);

impl sources::World for Reporter<'_> {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn tell(&mut self, report: &Report) -> Result<(), String> {
        give_report(self.0, report).map_err(|error| error.to_string())
    }

    fn say(&mut self, line: &str) {
        let _ = writeln!(std::io::stderr(), "sluice-agent: {line}");
    }
}
