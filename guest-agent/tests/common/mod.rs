// SPDX-License-Identifier: GPL-2.0-or-later
//! The host's end of the port, a watched child, and the kernel's view of it.
#![allow(dead_code, reason = "each test program uses a part")]

use serde_json::{Value, json};
use sluice_agent::domain::channel_abi::{
    EVENT_BYTES, EVENTS, GUEST_BYTES, HEADER_MAGIC, HOST_BYTES, MAGIC, REGISTER_BYTES, event,
    guest, host, register,
};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Long, for a machine that is busy with other work.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The agent under test, with this end of its port.
pub struct Host {
    pub agent: Child,
    pub folder: PathBuf,
    listener: UnixListener,
    pub stream: BufReader<UnixStream>,
    next_id: u64,
}

impl Host {
    pub fn start() -> Host {
        Host::start_with(Stdio::inherit())
    }

    pub fn start_with(stderr: Stdio) -> Host {
        Host::start_in(new_folder(), stderr)
    }

    /// In a guest that has the device.
    pub fn start_plugged() -> (Host, Device) {
        let folder = new_folder();
        let device = Device::plug(&folder);
        (Host::start_in(folder, Stdio::inherit()), device)
    }

    /// With more options, in a guest that has the device.
    pub fn start_with_options(options: &[&str]) -> (Host, Device) {
        let folder = new_folder();
        let device = Device::plug(&folder);
        let listener = UnixListener::bind(folder.join("port")).unwrap();
        let agent = agent_command(&folder).args(options).spawn().unwrap();
        (Host::of(folder, listener, agent), device)
    }

    fn start_in(folder: PathBuf, stderr: Stdio) -> Host {
        let listener = UnixListener::bind(folder.join("port")).unwrap();
        let agent = spawn_agent(&folder, stderr);
        Host::of(folder, listener, agent)
    }

    fn of(folder: PathBuf, listener: UnixListener, agent: Child) -> Host {
        let stream = accept(&listener);
        Host {
            agent,
            folder,
            listener,
            stream,
            next_id: 1,
        }
    }

    /// Ends the agent with a signal and starts another one.
    pub fn restart(&mut self, signal: i32) {
        self.end(signal);
        self.start_again();
    }

    pub fn start_again(&mut self) {
        self.agent = spawn_agent(&self.folder, Stdio::inherit());
        self.stream = accept(&self.listener);
    }

    /// The command that takes off the tags of a killed agent; whether it could.
    pub fn untag(&self) -> bool {
        self.untag_command().status().unwrap().success()
    }

    /// As systemd runs it after an agent that ended with this result and exit status.
    pub fn untag_after(&self, result: &str, status: &str) -> bool {
        let mut command = self.untag_command();
        command.arg("--unless-restarted");
        command.env("SERVICE_RESULT", result);
        command.env("EXIT_STATUS", status);
        command.status().unwrap().success()
    }

    fn untag_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-agent"));
        command.arg("--state").arg(self.folder.join("state.json"));
        command.arg("--devices").arg(self.folder.join("devices"));
        command.arg("untag");
        command
    }

    /// The program where every user reaches it, which a build folder need not be. Another process
    /// copies it: a file that is open for writing here, and so in a child that another test
    /// starts in that moment, cannot be run.
    pub fn reachable_agent(&self) -> PathBuf {
        let copy = self.folder.join("sluice-agent");
        if !copy.exists() {
            let mut cp = Command::new("cp");
            cp.arg(env!("CARGO_BIN_EXE_sluice-agent")).arg(&copy);
            assert!(cp.status().unwrap().success());
        }
        copy
    }

    pub fn end(&mut self, signal: i32) {
        // SAFETY: the pid is of our child, which is not reaped yet.
        unsafe { libc::kill(self.agent.id() as i32, signal) };
        self.agent.wait().unwrap();
    }

    /// The host's daemon is restarted: the agent has to find the new one.
    pub fn reconnect(&mut self) {
        self.stream
            .get_ref()
            .shutdown(std::net::Shutdown::Both)
            .unwrap();
        self.stream = accept(&self.listener);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    pub fn read_message(&mut self) -> Value {
        let mut line = String::new();
        self.stream
            .read_line(&mut line)
            .expect("the agent answers in time");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    /// The next message that is no notification.
    pub fn read_answer(&mut self) -> Value {
        loop {
            let message = self.read_message();
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send_bytes(format!("{line}\n").as_bytes());
        let answer = self.read_answer();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub fn set_rules(&mut self, classes: Value, rules: Value) -> Value {
        let params = json!({"revision": self.next_id, "interval_ms": 200, "classes": classes, "rules": rules});
        let answer = self.call("set_rules", params);
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    pub fn no_rules(&mut self) {
        self.set_rules(json!([]), json!([]));
    }

    /// Puts one process into a class with this tag.
    pub fn assign(&mut self, pid: i32, tag: u8) {
        let result = self.set_rules(
            json!([{"name": "c", "tag": tag}]),
            json!([pid_rule("r", "c", pid)]),
        );
        assert!(result["matched"].as_u64().unwrap() >= 1, "{result}");
    }

    pub fn row(&mut self, pid: i32) -> Option<Value> {
        let table = self.call("get_processes", json!({}));
        let rows = table["result"]["processes"].as_array().unwrap();
        rows.iter().find(|row| row["pid"] == pid).cloned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn new_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // SAFETY: returns a plain integer.
    let is_root = unsafe { libc::geteuid() } == 0;
    assert!(
        is_root,
        "this test sets real-time I/O priorities: run it as root"
    );
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder =
        std::env::temp_dir().join(format!("sluice-agent-test-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn spawn_agent(folder: &Path, stderr: Stdio) -> Child {
    agent_command(folder).stderr(stderr).spawn().unwrap()
}

fn agent_command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-agent"));
    command
        .arg("--port")
        .arg(folder.join("port"))
        .arg("--state")
        .arg(folder.join("state.json"))
        .arg("--devices")
        .arg(folder.join("devices"));
    command
}

fn accept(listener: &UnixListener) -> BufReader<UnixStream> {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    BufReader::new(stream)
}

/// A device as sysfs shows it, with files as its memory.
pub struct Device(PathBuf);

impl Device {
    pub fn plug(agent: &Path) -> Device {
        let folder = agent.join("devices/0000:00:05.0");
        fs::create_dir_all(&folder).unwrap();
        for (bar, bytes) in [(0, REGISTER_BYTES), (2, GUEST_BYTES), (4, HOST_BYTES)] {
            let file = File::create(folder.join(format!("resource{bar}"))).unwrap();
            file.set_len(bytes as u64).unwrap();
        }
        let device = Device(folder);
        device.set(0, register::MAGIC, &MAGIC.to_le_bytes());
        device.set(4, host::MAGIC, HEADER_MAGIC);
        device.set(4, host::EPOCH, &[1]);
        device.leave_a_bit();
        for (name, text) in [
            ("enable", "0"),
            ("device", "0x10fc"),
            ("subsystem_vendor", "0x1af4"),
            ("subsystem_device", "0x5c1c"),
            ("vendor", "0x1af4"),
        ] {
            fs::write(device.0.join(name), text).unwrap();
        }
        device
    }

    pub fn set(&self, bar: u32, offset: usize, bytes: &[u8]) {
        let path = self.0.join(format!("resource{bar}"));
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(bytes, offset as u64).unwrap();
    }

    pub fn byte(&self, bar: u32, offset: usize) -> u8 {
        let file = File::open(self.0.join(format!("resource{bar}"))).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset as u64).unwrap();
        byte[0]
    }

    /// The host's event number `number`, which is the newest.
    pub fn make_event(&self, number: u64, [kind, tag, resource]: [u8; 3], datum: u64) {
        let at = host::EVENTS + (number as usize - 1) % EVENTS * EVENT_BYTES;
        self.set(4, at + event::KIND, &[kind, tag, resource, 1]);
        self.set(4, at + event::DATUM, &datum.to_le_bytes());
        self.set(4, at + event::NUMBER, &number.to_le_bytes());
        self.set(4, host::EVENT_HEAD, &number.to_le_bytes());
        let bit = 1_u64 << (tag * 4 + resource);
        self.set(2, guest::PATTERN + 8, &bit.to_le_bytes());
    }

    /// An event of before, of the last priority: a bit that a new reader takes first.
    fn leave_a_bit(&self) {
        self.set(2, guest::PATTERN + 24, &[1]);
    }

    /// Until the agent reads events, as it does while there are subscribers.
    pub fn until_read(&self) {
        eventually("the agent reads events", || {
            self.byte(2, guest::PATTERN + 24) == 0
        });
    }

    pub fn entry(&self, index: usize) -> u8 {
        self.byte(2, guest::PORT_MAP + index)
    }

    pub fn is_in_force(&self) -> bool {
        self.byte(0, register::PORT_MAP) == 1
    }

    pub fn is_empty(&self) -> bool {
        self.pages()[guest::PORT_MAP..]
            .iter()
            .all(|&byte| byte == 0)
    }

    /// The guest's pages.
    pub fn pages(&self) -> Vec<u8> {
        fs::read(self.0.join("resource2")).unwrap()
    }
}

/// The program of examples/test-child.rs.
pub struct Watched {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Watched {
    pub fn start() -> Watched {
        Watched::start_at(&Watched::program())
    }

    pub fn program() -> PathBuf {
        // Test programs lie in deps/, examples beside it.
        let path = std::env::current_exe().unwrap();
        path.ancestors().nth(2).unwrap().join("examples/test-child")
    }

    /// The program by another path to it.
    pub fn start_at(program: &Path) -> Watched {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut watched = Watched {
            child,
            input,
            output,
        };
        watched.tell("report");
        watched
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn tell(&mut self, command: &str) -> String {
        self.send(command);
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    pub fn send(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    pub fn marks(&mut self) -> Value {
        serde_json::from_str(&self.tell("report")).unwrap()
    }

    pub fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends a process that is not our child, if it is still the one we mean.
pub struct Stray(pub i32);

impl Drop for Stray {
    fn drop(&mut self) {
        if std::fs::read_to_string(format!("/proc/{}/comm", self.0))
            .is_ok_and(|comm| comm.trim() == "sleep")
        {
            // SAFETY: takes plain integers.
            unsafe { libc::kill(self.0, libc::SIGKILL) };
        }
    }
}

pub fn pid_rule(id: &str, class: &str, pid: i32) -> Value {
    json!({"id": id, "class": class, "match": {"pid": pid, "start_time_ticks": start_time(pid)}})
}

pub fn start_time(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .nth(19)
        .unwrap()
        .parse()
        .unwrap()
}

pub fn threads(pid: i32) -> Vec<i32> {
    let mut tids: Vec<i32> = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    tids.sort_unstable();
    tids
}

pub fn ioprio(tid: i32) -> u16 {
    // SAFETY: takes and returns plain integers; 1 is "process".
    unsafe { libc::syscall(libc::SYS_ioprio_get, 1, tid) as u16 }
}

pub fn set_ioprio(tid: i32, value: u16) {
    // SAFETY: takes and returns plain integers; 1 is "process".
    assert_eq!(
        unsafe { libc::syscall(libc::SYS_ioprio_set, 1, tid, i32::from(value)) },
        0
    );
}

pub fn ioprios(pid: i32) -> Vec<u16> {
    threads(pid).into_iter().map(ioprio).collect()
}

/// Waits for the agent's scans to bring something about.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The process or thread id that this machine gave out last.
pub fn last_id() -> u64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    load.split_whitespace().last().unwrap().parse().unwrap()
}

/// How often the process has tried to write.
pub fn writes(pid: i32) -> u64 {
    calls(pid, "syscw: ")
}

pub fn reads(pid: i32) -> u64 {
    calls(pid, "syscr: ")
}

fn calls(pid: i32, name: &str) -> u64 {
    let counters = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = counters.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().parse().unwrap()
}

pub fn rss_kb(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// Sets how many files the process may open, and returns the earlier limit.
pub fn limit_files(pid: i32, most: u64) -> u64 {
    let mut before = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both structures are valid for the calls.
    unsafe {
        assert_eq!(
            libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &mut before),
            0
        );
        let fresh = libc::rlimit {
            rlim_cur: most,
            ..before
        };
        assert_eq!(
            libc::prlimit(pid, libc::RLIMIT_NOFILE, &fresh, std::ptr::null_mut()),
            0
        );
    }
    before.rlim_cur
}

/// The process that calls itself so, once it is there.
pub fn found_by_comm(comm: &str) -> i32 {
    found(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|text| text == format!("{comm}\n"))
    })
}

/// The process with this command line (arguments joined by blanks), once it is there.
pub fn found_by_cmdline(cmdline: &str) -> i32 {
    found(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|text| text.replace('\0', " ").trim_end() == cmdline)
    })
}

fn found(is_it: impl Fn(i32) -> bool) -> i32 {
    let mut pid = None;
    eventually("the process is there", || {
        let names = std::fs::read_dir("/proc").unwrap();
        let mut pids = names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pid = pids.find(|&pid| is_it(pid));
        pid.is_some()
    });
    pid.unwrap()
}
