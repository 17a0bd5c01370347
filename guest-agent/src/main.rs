// SPDX-License-Identifier: GPL-2.0-or-later
mod report_command;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use sluice_agent::adapters::channel::PCI_DEVICES;
use sluice_agent::adapters::clock::Clock;
use sluice_agent::adapters::kept::Kept;
use sluice_agent::adapters::{report, state, subscriber};
use sluice_agent::domain::channel_abi::RESOURCE_NAMES;
use sluice_agent::domain::raise::Raise;
use sluice_agent::domain::rules::RuleSet;
use sluice_agent::domain::shape::{self, Message};
use sluice_agent::domain::subscription::{KIND_NAMES, Request};
use sluice_agent::domain::tag::Tag;
use sluice_agent::services::agent::Agent;
use sluice_agent::services::channel::Channel;
use sluice_agent::services::channel_view;
use sluice_agent::services::event_view::{self, Action, Plan, Target};
use sluice_agent::services::log::escaped;
use sluice_agent::services::raise;
use sluice_agent::services::scanner::Depth;
use sluice_agent::services::session::{RAISED_FILE, Session};
use std::error::Error;
use std::fmt::Display;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const SHAPE_EXAMPLES: &str = "\
Examples:
  sluice-agent shape --class bulk 4711                 a process that runs
  sluice-agent shape --class bulk -- tar cf /b.tar /   a command
  sluice-agent shape --list
  sluice-agent shape --release 4711

Rules of the host go first: of a process that one matches, the request is refused.";

const EXAMPLES: &str = "\
Examples:
  sluice-agent                          serve the host, as the system service does
  sluice-agent --once                   print the process table as JSON
  sluice-agent check-rules rules.json   check rules and show what they match
  sluice-agent channel ping             time calls to the host
  sluice-agent events                   print when this process's class is limited

A rules file holds what the host would send:
  {\"revision\": 1,
   \"classes\": [{\"name\": \"video\", \"tag\": 1}],
   \"rules\": [{\"id\": \"vlc\", \"class\": \"video\", \"match\": {\"exe\": \"/usr/bin/vlc\"}}]}";

const EVENT_EXAMPLES: &str = "\
Examples:
  sluice-agent events                            print events of this process's class
  sluice-agent events --kind limited --json --count 1
                                                 wait until the class is limited
  sluice-agent events --kind backlog --backlog 1048576 --signal 4711:SIGRTMIN+1
                                                 signal a player when 1 MiB waits
  sluice-agent events --kind limit-changed --above 2000000 --command 'echo $SLUICE_DATUM'
                                                 run a command when the new limit is above 2 MB/s";

/// Tags the I/O of this guest's processes with the classes its host names, and
/// reports the process table to the host.
#[derive(Parser)]
#[command(name = "sluice-agent", version, after_help = EXAMPLES)]
struct Options {
    /// The virtio-serial port (or a UNIX socket or terminal)
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/dev/virtio-ports/org.sluice.agent.0"
    )]
    port: PathBuf,
    /// Where tags are remembered, so that a restarted agent can undo them
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/run/sluice-agent/state.json"
    )]
    state: PathBuf,
    /// Where the device sluice-channel is looked for
    #[arg(long, value_name = "FOLDER", default_value = PCI_DEVICES, global = true)]
    devices: PathBuf,
    /// While this class is limited, its threads have real-time CPU priority for RUNTIME of each
    /// PERIOD, as video=200ms/1s. For several classes, say it again
    #[arg(long, value_name = "CLASS=RUNTIME/PERIOD")]
    raise: Vec<Raise>,
    /// Print the process table as JSON and exit; rates are over half a second
    #[arg(long)]
    once: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Check a file of rules and show which processes they match now
    CheckRules {
        /// JSON: the parameters of `set_rules`
        file: PathBuf,
    },
    /// Tell the host how a stream of this process's class is
    #[command(after_help = report_command::EXAMPLES)]
    Report(report_command::Options),
    /// Tell of events of this process's class: limited, limit changed, backlog
    #[command(after_help = EVENT_EXAMPLES)]
    Events(EventOptions),
    /// Show the channel to the host: port map, calls, classes
    Channel {
        /// As JSON
        #[arg(long, global = true)]
        json: bool,
        #[command(subcommand)]
        command: Option<ChannelCommand>,
    },
    /// Put a process, with its children, into a class that the host has granted (root only)
    #[command(after_help = SHAPE_EXAMPLES)]
    Shape(ShapeOptions),
    /// Take off the tags that a killed agent left, as the service does when it stops
    Untag {
        /// Not where systemd says that the agent is started again (SERVICE_RESULT)
        #[arg(long)]
        unless_restarted: bool,
    },
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["class", "list", "release"]))]
struct ShapeOptions {
    /// The class
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// The process
    #[arg(value_name = "PID", requires = "class", conflicts_with = "program",
          value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// Show the processes that were put into classes here
    #[arg(long)]
    list: bool,
    /// Let the rules of the host decide about a process again
    #[arg(long, value_name = "PID")]
    release: Option<i32>,
    /// The socket of the agent
    #[arg(long, value_name = "PATH", default_value = report::DEFAULT_PATH)]
    socket: PathBuf,
    /// A command to run in the class
    #[arg(last = true, value_name = "COMMAND", requires = "class")]
    program: Vec<std::ffi::OsString>,
}

#[derive(Args)]
struct EventOptions {
    /// Kinds of events, separated by commas; else all
    #[arg(long, value_name = "KINDS", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(KIND_NAMES))]
    kind: Vec<String>,
    /// Resources, separated by commas; else all
    #[arg(long, value_name = "RESOURCES", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(RESOURCE_NAMES))]
    resource: Vec<String>,
    /// The backlog is an event when it rises above so many bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    backlog: u64,
    /// Pass over events with a datum of no more than N: requests that wait (limited,
    /// no-longer-limited), bytes per second (limit-changed), bytes that wait (backlog)
    #[arg(long, value_name = "N")]
    above: Option<u64>,
    /// The class, of which this user must have a process, unless root asks
    #[arg(long)]
    class: Option<String>,
    /// A line of JSON for each event
    #[arg(long)]
    json: bool,
    /// Send a real-time signal with the datum for each event, instead of a line
    #[arg(long, value_name = "PID[:SIGRTMIN+N]", conflicts_with_all = ["json", "command"])]
    signal: Option<Target>,
    /// Run a command of the shell for each event, with SLUICE_EVENT, SLUICE_CLASS,
    /// SLUICE_RESOURCE, SLUICE_DATUM, SLUICE_TIME_NS and SLUICE_LOST
    #[arg(long, conflicts_with = "json")]
    command: Option<String>,
    /// End after so many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// The socket of the agent
    #[arg(long, value_name = "PATH", default_value = subscriber::DEFAULT_PATH)]
    socket: PathBuf,
}

#[derive(Subcommand)]
enum ChannelCommand {
    /// Time calls to the host: fast ones, and deferred ones
    Ping {
        /// How many of each
        #[arg(long, value_name = "N", default_value_t = 100,
              value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        count: u64,
        /// Upcalls too: events that are asked for, and awaited by the interrupt
        #[arg(long)]
        upcall: bool,
        /// Messages too, over a port whose host's end sends back all that it gets
        #[arg(long, value_name = "PATH")]
        port_echo: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.command {
        Some(Command::CheckRules { file }) => check_rules(file),
        Some(Command::Channel { json, command }) => {
            channel(&options.devices, *json, command.as_ref())
        }
        Some(Command::Report(report)) => report_command::run(report),
        Some(Command::Shape(wanted)) => shape(wanted),
        Some(Command::Events(options)) => tell_events(options),
        Some(Command::Untag { unless_restarted }) if *unless_restarted && is_restarted() => Ok(()),
        Some(Command::Untag { .. }) => untag(options.state, options.devices),
        None if options.once => print_table(),
        None => serve(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "sluice-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: Options) -> Result<(), Box<dyn Error>> {
    // SAFETY: nothing is opened before.
    let kept = unsafe { Kept::take() };
    let clock = Clock::start();
    let folder = folder_of(&options.state);
    let channel = Channel::at(options.devices);
    let agent = Agent::new(clock.now_ns(), Some(options.state), channel)?;
    Ok(Session::new(agent, clock, options.port, &folder, &options.raise, kept).run()?)
}

fn folder_of(state: &Path) -> PathBuf {
    state.parent().unwrap_or(Path::new("")).to_owned()
}

/// Whether this runs after an agent that nobody has stopped, with the unit's Restart=always and
/// its RestartPreventExitStatus=2.
fn is_restarted() -> bool {
    let told = |name| std::env::var(name).unwrap_or_default();
    match told("SERVICE_RESULT").as_str() {
        "signal" | "core-dump" | "oom-kill" => true,
        "exit-code" => told("EXIT_STATUS") != "2",
        _ => false,
    }
}

fn untag(state: PathBuf, devices: PathBuf) -> Result<(), Box<dyn Error>> {
    {
        let _lock = state::lock(&state)?;
        raise::take_back(&folder_of(&state).join(RAISED_FILE));
    }
    let channel = Channel::at(devices);
    Ok(Agent::take_off_left(
        Clock::start().now_ns(),
        state,
        channel,
    )?)
}

fn channel(
    devices: &Path,
    as_json: bool,
    command: Option<&ChannelCommand>,
) -> Result<(), Box<dyn Error>> {
    let device = channel_view::open(devices)?;
    let mut out = std::io::stdout().lock();
    match command {
        None => show(&mut out, as_json, &channel_view::state(&device)),
        Some(ChannelCommand::Ping {
            count,
            upcall,
            port_echo,
        }) => {
            let more = channel_view::More {
                upcall: *upcall,
                port: port_echo.as_deref(),
            };
            let pings = channel_view::ping(&device, *count, &more)?;
            show(&mut out, as_json, &pings)
        }
    }
}

fn show<T: Serialize + Display>(
    out: &mut impl Write,
    as_json: bool,
    shown: &T,
) -> Result<(), Box<dyn Error>> {
    if as_json {
        Ok(writeln!(out, "{}", serde_json::to_string(shown)?)?)
    } else {
        Ok(write!(out, "{shown}")?)
    }
}

fn shape(options: &ShapeOptions) -> Result<(), Box<dyn Error>> {
    let request = match (&options.class, options.release) {
        (Some(class), _) if options.pid.is_none() && options.program.is_empty() => {
            return Err(format!("class {class}: name a PID, or a command after --").into());
        }
        (Some(class), _) => shape::Request::Put {
            pid: options.pid,
            class: class.clone(),
        },
        (None, Some(pid)) => shape::Request::Release { pid },
        (None, None) => shape::Request::List,
    };
    let text = serde_json::to_vec(&Message { shape: request })?;
    let answer = ask_agent(&options.socket, &text)?;
    if let Some((program, arguments)) = options.program.split_first() {
        // This process keeps its class as another program.
        let error = std::process::Command::new(program).args(arguments).exec();
        return Err(format!("cannot run {}: {error}", program.to_string_lossy()).into());
    }
    let mut out = std::io::stdout().lock();
    for row in answer["shaped"].as_array().into_iter().flatten() {
        let text = |name: &str| escaped(row[name].as_str().unwrap_or_default());
        let (class, state) = (text("class"), text("state"));
        let pid = row["pid"].as_i64().unwrap_or_default();
        writeln!(out, "{pid:>8}  class {class}, {state}")?;
    }
    Ok(())
}

/// The answer, unless that is an error.
fn ask_agent(path: &Path, text: &[u8]) -> Result<serde_json::Value, Box<dyn Error>> {
    let socket = path.display();
    let answer = report::send_report(path, text).map_err(|error| {
        format!("cannot ask {socket} ({error}): see that sluice-agent runs here")
    })?;
    let answer: serde_json::Value = serde_json::from_str(&answer)
        .map_err(|error| format!("{socket} answered with {} ({error})", escaped(&answer)))?;
    match answer["error"].as_str() {
        Some(error) => Err(escaped(error).into()),
        None => Ok(answer),
    }
}

fn tell_events(options: &EventOptions) -> Result<(), Box<dyn Error>> {
    let action = match (options.signal, &options.command) {
        (Some(target), _) => Action::Signal(target),
        (None, Some(command)) => Action::Command(command.clone()),
        (None, None) if options.json => Action::Json,
        (None, None) => Action::Line,
    };
    let plan = Plan {
        request: Request {
            kinds: options.kind.clone(),
            resources: options.resource.clone(),
            backlog: options.backlog,
            class: options.class.clone(),
        },
        above: options.above,
        action,
        count: options.count,
    };
    event_view::run(&options.socket, &plan)
}

fn print_table() -> Result<(), Box<dyn Error>> {
    const WINDOW: Duration = Duration::from_millis(500);
    let clock = Clock::start();
    let mut agent = Agent::observer()?;
    agent.scan(clock.now_ns(), Depth::Table);
    std::thread::sleep(WINDOW);
    agent.scan(clock.now_ns(), Depth::Table);
    // Not println!, which panics when the reader has seen enough.
    Ok(writeln!(std::io::stdout(), "{}", agent.table(usize::MAX))?)
}

fn check_rules(file: &Path) -> Result<(), Box<dyn Error>> {
    let named = |error: &dyn Error| format!("{}: {error}", file.display());
    let bytes = std::fs::read(file).map_err(|error| named(&error))?;
    let params = serde_json::from_slice(&bytes).map_err(|error| named(&error))?;
    let rules = RuleSet::from_params(&params, Tag::MAX)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    if !rules.refused.is_empty() {
        let whys = rules
            .refused
            .iter()
            .map(|refused| refused.error.to_string());
        let whys: Vec<String> = whys.collect();
        return Err(format!("{}: {}", file.display(), whys.join("\n")).into());
    }
    let mut out = std::io::stdout().lock();
    let count = rules.rules.len();
    writeln!(out, "{}: {count} rules are good", file.display())?;
    let mut agent = Agent::observer()?;
    agent.preview(Clock::start().now_ns(), rules)?;
    for (pid, comm, class, rule) in agent.matched() {
        let (comm, class, rule) = (escaped(comm), escaped(class), escaped(rule));
        writeln!(out, "{pid:>8}  {comm:<16}  class {class}, rule {rule}")?;
    }
    Ok(())
}
