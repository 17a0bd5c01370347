// SPDX-License-Identifier: GPL-2.0-or-later
//! Events of the host to programs in C, in Python and on the command line, by the real agent.
//! The device's memory is plain files, so the agent looks for events without an interrupt.
//! Needs root, a C compiler and python3.

mod common;
use common::*;
use serde_json::{Value, json};
use sluice_agent::domain::channel_abi::{
    CALL_BYTES, CLASS_BYTES, CLASS_NAME_BYTES, EVENT_BYTES, EVENTS, RESOURCES, call, class, event,
    guest, host, register, service,
};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const NOBODY: u32 = 65_534;
const TAG: u8 = 3;
const DISK_WRITE: u8 = 1;

/// With a path it waits for events there, else for a signal.
const IN_C: &str = r#"
#include "sluice-events.h"
#include <inttypes.h>
#include <signal.h>

static int wait_for_signal(void)
{
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    puts("ready");
    fflush(stdout);
    if (sigwaitinfo(&set, &info) < 0) {
        return 1;
    }
    printf("%u %u %" PRIu64 "\n", SLUICE_SIGNAL_KIND(info.si_value.sival_ptr),
           SLUICE_SIGNAL_RESOURCE(info.si_value.sival_ptr),
           SLUICE_SIGNAL_DATUM(info.si_value.sival_ptr));
    return 0;
}

/* The agent's reason to end, as long as an event; or it has ended before it read something. */
static int has_ended(int reset)
{
    char reason[sizeof(struct sluice_event) + 1];
    struct sluice_event event;
    int ends[2];
    snprintf(reason, sizeof(reason), "{\"error\":\"%060d\"}", 0);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) < 0) {
        return 0;
    }
    if (send(reset ? ends[0] : ends[1], reason, sizeof(event), 0) != sizeof(event)) {
        return 0;
    }
    close(ends[1]);
    return sluice_events_next(ends[0], &event) == -EPIPE;
}

int main(int argc, char **argv)
{
    struct sluice_event_request wanted = {
        .kinds = SLUICE_KIND(SLUICE_LIMITED) | SLUICE_KIND(SLUICE_BACKLOG),
        .resources = SLUICE_RESOURCE(SLUICE_DISK_WRITE),
        .backlog = 100, .class_name = argc > 2 ? argv[2] : NULL,
    };
    struct sluice_event event;
    struct pollfd waited = { .events = POLLIN };
    int found;
    if (argc < 2) {
        return wait_for_signal();
    }
    if (!has_ended(0) || !has_ended(1)) {
        puts("an end is taken for an event, or for an error");
        return 4;
    }
    waited.fd = sluice_events_open_at(&wanted, argv[1]);
    if (waited.fd < 0) {
        printf("%s\n", strerror(-waited.fd));
        return 1;
    }
    if (sluice_events_next(waited.fd, &event) != 0) {
        return 2;
    }
    puts("ready");
    fflush(stdout);
    do {
        poll(&waited, 1, -1);
        while ((found = sluice_events_next(waited.fd, &event)) > 0) {
            printf("%u %u %" PRIu64 " %.32s\n", event.kind, event.resource, event.datum,
                   event.class_name);
            fflush(stdout);
        }
    } while (found == 0);
    return found == -EPIPE ? 0 : 3;
}
"#;
const IN_PYTHON: &str = "import selectors, sys, sluice_events
try:
    sluice_events.Events(class_='nobody has it', path=sys.argv[1])
except PermissionError as error:
    print(error, flush=True)
with sluice_events.Events(kinds=['limit-changed'], path=sys.argv[1]) as events:
    assert events.next(timeout_s=0) is None
    print('ready', flush=True)
    selector = selectors.DefaultSelector()
    selector.register(events, selectors.EVENT_READ)
    selector.select()
    print(events.next(timeout_s=0), flush=True)
    try:
        events.next()
    except ConnectionError as error:
        print(error)";

fn start() -> (Host, Device) {
    let (mut host, device) = Host::start_plugged();
    // This process and its children, which subscribe.
    host.assign(std::process::id() as i32, TAG);
    device.set(
        4,
        host::CLASS_NAMES + usize::from(TAG) * CLASS_NAME_BYTES,
        b"c",
    );
    (host, device)
}

fn socket(host: &Host) -> PathBuf {
    host.folder.join("events.sock")
}

/// A program that waits for events, and its lines.
struct Listener {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Listener {
    fn start(command: &mut Command) -> Listener {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Listener { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// What it said before it failed.
    fn error(&mut self) -> String {
        assert!(!self.child.wait().unwrap().success());
        let mut text = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command, where every user reaches it.
fn command(host: &Host, more: &[&str]) -> Command {
    let copy = host.folder.join("sluice-agent");
    if !copy.exists() {
        // By a process of its own: a child of another test could hold the open copy.
        let mut cp = Command::new("cp");
        cp.arg(env!("CARGO_BIN_EXE_sluice-agent")).arg(&copy);
        assert!(cp.status().unwrap().success());
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&host.folder, open).unwrap();
    }
    let mut command = Command::new(copy);
    command
        .arg("events")
        .args(more)
        .arg("--socket")
        .arg(socket(host));
    command
}

/// Files that the agent has open: more while there are subscribers.
fn open_files(host: &Host) -> usize {
    let count = |_| {
        let files = std::fs::read_dir(format!("/proc/{}/fd", host.agent.id()));
        files.unwrap().count()
    };
    // A scan opens some for a moment.
    (0..20).map(count).min().unwrap()
}

fn crate_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn compiled(host: &Host) -> PathBuf {
    let (source, program) = (host.folder.join("p.c"), host.folder.join("p"));
    std::fs::write(&source, IN_C).unwrap();
    let status = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_folder("include"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(status.unwrap().success());
    program
}

#[test]
fn a_command_prints_the_events_of_its_class() {
    let (host, device) = start();
    let before = open_files(&host);
    let of = ["--kind", "limited,limit-changed", "--json", "--count", "2"];
    let mut listener = Listener::start(&mut command(&host, &of));
    device.until_read();
    device.make_event(1, [event::BACKLOG, TAG, DISK_WRITE], 5);
    device.make_event(2, [event::LIMITED, TAG + 1, DISK_WRITE], 6);
    device.make_event(3, [event::LIMITED, TAG, DISK_WRITE], 7);
    device.make_event(4, [event::LIMIT_CHANGED, TAG, DISK_WRITE], 1_000_000);
    let first: Value = serde_json::from_str(&listener.line()).unwrap();
    let expected = json!({
        "kind": "limited", "class": "c", "tag": TAG, "resource": "disk.write",
        "datum": 7, "time_ns": 0, "number": 3, "lost": 0,
    });
    assert_eq!(first, expected);
    assert!(listener.line().contains("1000000"));
    assert!(listener.child.wait().unwrap().success());
    eventually("it is forgotten", || open_files(&host) == before);
}

#[test]
fn an_interrupt_that_nobody_takes_is_not_asked_for() {
    let (host, device) = start();
    let _listener = Listener::start(&mut command(&host, &["--kind", "limited"]));
    device.until_read();
    device.make_event(1, [event::LIMITED, TAG, DISK_WRITE], 7);
    eventually("the agent looks", || {
        device.byte(2, guest::PATTERN + 9) == 0
    });
    assert_eq!(
        device.byte(0, register::EVENTS),
        0,
        "the line may be shared"
    );
}

#[test]
fn entries_count_after_a_migration_to_a_host_with_an_earlier_clock() {
    let (host, device) = start();
    let at = (usize::from(TAG) * RESOURCES + usize::from(DISK_WRITE)) * CLASS_BYTES;
    let backlog = |bytes: u8| device.set(4, host::CLASSES + at + class::BACKLOG_BYTES, &[bytes]);
    let written = |ns: u64| device.set(4, host::HEARTBEAT_NS, &ns.to_le_bytes());
    let happened = |slot: usize, ns: u64| {
        let at = host::EVENTS + slot * EVENT_BYTES + event::TIME_NS;
        device.set(4, at, &ns.to_le_bytes());
    };
    device.set(4, host::CLASSES + at + class::USED, &[1]);
    written(1000);
    let of = ["--kind", "backlog,limit-changed", "--backlog", "100"];
    let mut listener = Listener::start(&mut command(&host, &of));
    device.until_read();
    backlog(101);
    assert_eq!(listener.line(), "c disk.write backlog: 101 bytes wait");
    backlog(0);
    happened(0, 5000);
    device.make_event(1, [event::BACKLOG, TAG, DISK_WRITE], 50);
    device.make_event(2, [event::LIMIT_CHANGED, TAG, DISK_WRITE], 0);
    assert_eq!(listener.line(), "c disk.write limit-changed: no limit");
    backlog(102);
    written(10);
    assert_eq!(listener.line(), "c disk.write backlog: 102 bytes wait");
}

#[test]
fn the_host_is_asked_for_the_class() {
    let (host, device) = start();
    let of = ["--kind", "backlog", "--backlog", "4096"];
    let _listener = Listener::start(&mut command(&host, &of));
    device.until_read();
    eventually("a call is written", || {
        // In the order of the tags; this device answers none, so each is tried again.
        let at = guest::CALLS;
        let call = &device.pages()[at..at + CALL_BYTES];
        let word = |at: usize| u64::from_le_bytes(call[at..at + 8].try_into().unwrap());
        let kinds = 1 << event::BACKLOG | 1 << event::GRANTS;
        call[call::SERVICE] == service::EVENTS as u8
            && word(call::ARGUMENTS) == u64::from(TAG)
            && word(call::ARGUMENTS + 8) == kinds
            && word(call::ARGUMENTS + 24) == 4096
    });
}

#[test]
fn a_filter_then_a_signal() {
    let (host, device) = start();
    let mut program = Listener::start(&mut Command::new(compiled(&host)));
    assert_eq!(program.line(), "ready");
    let target = format!("{}:SIGRTMIN+1", program.child.id());
    let of = ["--kind", "backlog", "--above", "10", "--signal", &target];
    let mut listener = Listener::start(&mut command(&host, &of));
    device.until_read();
    device.make_event(1, [event::BACKLOG, TAG, DISK_WRITE], 10);
    device.make_event(2, [event::BACKLOG, TAG, 2], 11);
    assert_eq!(program.line(), "4 2 11");
    assert!(program.child.wait().unwrap().success());
    let error = listener.error();
    assert!(error.contains("has ended"), "{error}");
}

#[test]
fn a_command_is_run_for_each_event() {
    let (host, device) = start();
    let shell = "echo $SLUICE_EVENT $SLUICE_CLASS $SLUICE_RESOURCE $SLUICE_DATUM";
    let mut listener = Listener::start(&mut command(&host, &["--command", shell]));
    device.until_read();
    device.make_event(1, [event::LIMIT_CHANGED, TAG, DISK_WRITE], 9);
    assert_eq!(listener.line(), "limit-changed c disk.write 9");
    device.make_event(2, [event::UNLIMITED, TAG, 3], 0);
    assert_eq!(listener.line(), "no-longer-limited c net.outbound 0");
}

#[test]
fn a_program_in_c_polls() {
    let (mut host, device) = start();
    let program = compiled(&host);
    let mut listener = Listener::start(Command::new(&program).arg(socket(&host)));
    assert_eq!(listener.line(), "ready");
    device.make_event(1, [event::LIMITED, TAG, 0], 5);
    device.make_event(2, [event::BACKLOG, TAG, DISK_WRITE], 100);
    device.make_event(3, [event::BACKLOG, TAG, DISK_WRITE], 101);
    assert_eq!(listener.line(), "4 1 101 c");
    let mut refused = Listener::start(Command::new(&program).arg(socket(&host)).arg("d"));
    assert_eq!(refused.line(), "Permission denied");
    host.end(libc::SIGTERM);
    assert!(listener.child.wait().unwrap().success());
    let mut without = Listener::start(Command::new(&program).arg(socket(&host)));
    assert_eq!(without.line(), "No such file or directory");
}

#[test]
fn a_program_in_python_selects() {
    let (mut host, device) = start();
    let mut python = Command::new("python3");
    python
        .env("PYTHONPATH", crate_folder("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", IN_PYTHON])
        .arg(socket(&host));
    let mut listener = Listener::start(&mut python);
    assert!(listener.line().contains("granted no class"));
    assert_eq!(listener.line(), "ready");
    device.make_event(1, [event::LIMIT_CHANGED, TAG, DISK_WRITE], 42);
    let expected = "Event(kind='limit-changed', class_='c', resource='disk.write', datum=42, \
                    time_ns=0, lost=0)";
    assert_eq!(listener.line(), expected);
    host.end(libc::SIGTERM);
    assert_eq!(listener.line(), "the agent has ended the subscription");
}

#[test]
fn a_user_sees_the_classes_of_his_own_processes() {
    let (mut host, device) = Host::start_plugged();
    let mut watched = Watched::start();
    let own = std::process::id() as i32;
    let mut user = Command::new("sleep")
        .arg("600")
        .uid(NOBODY)
        .spawn()
        .unwrap();
    host.set_rules(
        json!([{"name": "c", "tag": 1}, {"name": "d", "tag": 2}, {"name": "e", "tag": 3}]),
        json!([
            pid_rule("other", "c", watched.pid()),
            pid_rule("second", "e", user.id() as i32),
            pid_rule("own", "d", own)
        ]),
    );
    let ask = |class: &str| {
        let of = ["--class", class, "--count", "1"];
        Listener::start(command(&host, &of).uid(NOBODY))
    };
    let error = ask("c").error();
    assert!(error.contains("which is \"d\""), "{error}");
    let before = open_files(&host);
    let mut listener = ask("e");
    device.until_read();
    device.make_event(1, [event::LIMITED, 1, 0], 1);
    device.make_event(2, [event::LIMITED, 3, 0], 2);
    assert!(listener.line().contains("disk.read limited: 2"));
    eventually("it is forgotten", || open_files(&host) == before);
    // Events end with the process that gave the right to them.
    let mut listener = ask("e");
    eventually("it has subscribed", || open_files(&host) > before);
    user.kill().unwrap();
    user.wait().unwrap();
    let error = listener.error();
    assert!(error.contains("which is \"d\""), "{error}");
    watched.end();
}

#[test]
fn a_slow_program_is_told_how_much_it_lost() {
    const MORE: u64 = 2 * EVENTS as u64;
    let (host, device) = start();
    let of = [
        "--kind",
        "limited",
        "--command",
        "read line < \"$GATE\"; echo $SLUICE_DATUM $SLUICE_LOST",
    ];
    let gate = host.folder.join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut listener = Listener::start(command(&host, &of).env("GATE", &gate));
    device.until_read();
    for number in 1..=MORE {
        device.make_event(number, [event::LIMITED, TAG, 0], number);
        // Not so quick that the ring is overwritten.
        if number % 128 == 0 {
            eventually("they are taken", || device.byte(2, guest::PATTERN + 9) == 0);
        }
    }
    let (mut told, mut lost) = (0, 0);
    let mut number = MORE;
    while told + lost < number {
        std::fs::write(&gate, "go\n").unwrap();
        let line = listener.line();
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        told += 1;
        lost += words[1];
        if words[0] == MORE - 1 || (lost == 0 && told >= MORE / 2) {
            panic!("nothing was lost: {line}");
        }
        if lost == 0 && told == 10 {
            // Something after the loss, which tells of it.
            number += 1;
            device.make_event(number, [event::LIMITED, TAG, 0], number);
        }
    }
    assert!(lost > 0);
    assert_eq!(told + lost, number);
}

#[test]
fn garbage_floods_and_crowds_leave_the_agent_well() {
    let (mut host, _device) = start();
    let sender = UnixDatagram::unbound().unwrap();
    sender.connect(socket(&host)).unwrap();
    sender.set_nonblocking(true).unwrap();
    for number in 0..20_000_usize {
        let text = match number % 3 {
            0 => "{}".to_owned(),
            1 => "{".repeat(1 + number % 2000),
            _ => String::from("\0\u{7}nonsense"),
        };
        let _ = sender.send(text.as_bytes());
    }
    assert!(host.call("get_processes", json!({}))["result"].is_object());
    let before = open_files(&host);
    let crowd: Vec<Listener> = (0..17)
        .map(|_| Listener::start(command(&host, &[]).uid(NOBODY)))
        .collect();
    let mut refused = 0;
    eventually("one of them is refused", || {
        refused = 0;
        for listener in &crowd {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", listener.child.id()));
            refused += usize::from(stat.is_ok_and(|stat| stat.contains(") Z ")));
        }
        refused == 1
    });
    drop(crowd);
    eventually("they are forgotten", || open_files(&host) == before);
}
