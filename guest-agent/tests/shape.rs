// SPDX-License-Identifier: GPL-2.0-or-later
//! Root of the guest puts processes into granted classes by `sluice-agent shape`, against the
//! real agent. Needs root.

mod common;
use common::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

const TAG: u8 = 2;
const TAG_IOPRIO: u16 = 0x2002;

/// A host that has granted the class `bulk`, and has no rule.
fn start() -> Host {
    start_with(TAG)
}

fn start_with(tag: u8) -> Host {
    let mut host = Host::start();
    host.set_rules(bulk(tag), json!([]));
    host
}

fn bulk(tag: u8) -> Value {
    json!([{"name": "bulk", "tag": tag}])
}

/// A process that a command has left, which runs on in its class; and the command's output.
fn orphan(host: &mut Host, words: &str) -> (Stray, String) {
    let words = format!("{words}; setsid sleep 305 >/dev/null 2>&1 & echo $!");
    let mut ran = command(host);
    let ran = ran.args(["--class", "bulk", "--", "sh", "-c", &words]);
    let ran = ran.output().unwrap();
    let pid: i32 = String::from_utf8(ran.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    // It has another name at first, by which it would not be ended.
    eventually("the orphan sleeps", || {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| comm.trim() == "sleep")
    });
    let stray = Stray(pid);
    eventually("the orphan is in the class", || {
        host.row(pid).is_some_and(|row| row["class"] == "bulk")
    });
    (stray, String::from_utf8(ran.stderr).unwrap())
}

fn command(host: &Host) -> Command {
    let mut command = Command::new(host.reachable_agent());
    command.arg("shape").arg("--socket");
    command.arg(host.folder.join("report.sock"));
    command
}

fn shape(host: &Host, words: &[&str]) -> Output {
    command(host).args(words).output().unwrap()
}

/// The words' output, which has to be good.
fn said(host: &Host, words: &[&str]) -> String {
    let output = shape(host, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_process_is_put_into_a_class_kept_there_and_released() {
    let mut host = start();
    let mut watched = Watched::start();
    watched.tell("thread");
    let pid = watched.pid();
    let name = pid.to_string();
    said(&host, &["--class", "bulk", &name]);
    assert!(ioprios(pid).iter().all(|&value| value == TAG_IOPRIO));
    let line = format!("{pid:>8}  class bulk, in force\n");
    assert_eq!(said(&host, &["--list"]), line);

    // A host that sends its rules anew knows nothing of it.
    host.no_rules();
    assert_eq!(ioprio(pid), 0);
    let list = said(&host, &["--list"]);
    assert!(list.contains("does not grant the class"), "{list}");
    host.set_rules(bulk(TAG), json!([]));
    assert_eq!(ioprio(pid), TAG_IOPRIO);

    host.restart(libc::SIGKILL);
    eventually("the next agent serves", || {
        shape(&host, &["--list"]).status.success()
    });
    assert_eq!(said(&host, &["--list"]), line);
    assert_eq!(ioprio(pid), TAG_IOPRIO);

    said(&host, &["--release", &name]);
    assert!(ioprios(pid).iter().all(|&value| value == 0));
    assert_eq!(said(&host, &["--list"]), "");
    watched.end();
}

#[test]
fn a_command_runs_in_its_class_and_its_children_after_it() {
    // Of no other test: an agent that runs beside this one would take the orphan for its own.
    const ITS_TAG: u8 = 6;
    let mut host = start_with(ITS_TAG);
    let (stray, told) = orphan(&mut host, "ionice -p $$ >&2");
    assert_eq!(told, format!("realtime: prio {ITS_TAG}\n"));
    let list = said(&host, &["--list"]);
    assert!(list.contains("its children go on"), "{list}");
    drop(stray);
    eventually("the wish ends with the last of them", || {
        said(&host, &["--list"]).is_empty()
    });
}

/// The sockets by which the kernel tells the agent of processes.
fn connectors_of(host: &Host) -> BTreeSet<String> {
    const CONNECTOR: &str = "11";
    let agent = format!("/proc/{}", host.agent.id());
    let open = std::fs::read_dir(format!("{agent}/fd")).unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let targets: Vec<PathBuf> = targets.collect();
    let all = std::fs::read_to_string(format!("{agent}/net/netlink")).unwrap();
    all.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.get(1) == Some(&CONNECTOR))
        .map(|words| format!("socket:[{}]", words[words.len() - 1]))
        .filter(|socket| targets.contains(&PathBuf::from(socket)))
        .collect()
}

#[test]
fn the_kernel_is_listened_to_as_long_as_something_is_shaped() {
    let mut host = start();
    let mut watched = Watched::start();
    said(&host, &["--class", "bulk", &watched.pid().to_string()]);
    let before = connectors_of(&host);
    host.set_rules(bulk(TAG), json!([]));
    assert_eq!(connectors_of(&host), before);
    watched.end();
}

#[test]
fn children_keep_the_class_over_a_pause_of_the_grant_and_a_restart_of_the_agent() {
    // Of no other test: see above.
    const ITS_TAG: u8 = 5;
    let mut host = start_with(ITS_TAG);
    let (stray, _) = orphan(&mut host, "true");
    let has = |value: u16| eventually("it has its priority", || ioprio(stray.0) == value);
    let before = said(&host, &["--list"]);
    assert!(before.contains("its children go on"), "{before}");

    host.no_rules();
    has(0);
    let list = said(&host, &["--list"]);
    assert!(list.contains("the host does not grant"), "{list}");
    host.set_rules(bulk(ITS_TAG), json!([]));
    has(0x2005);
    assert_eq!(said(&host, &["--list"]), before);

    host.restart(libc::SIGTERM);
    eventually("the next agent serves", || {
        shape(&host, &["--list"]).status.success()
    });
    assert_eq!(said(&host, &["--list"]), before);
    has(0x2005);
}

#[test]
fn the_hosts_word_goes_first() {
    let mut host = start();
    let mut watched = Watched::start();
    let pid = watched.pid();
    let name = pid.to_string();
    let error = refusal(&shape(&host, &["--class", "video", &name]));
    assert!(error.contains("granted: bulk"), "{error}");
    let error = refusal(&shape(&host, &["--class", "default", &name]));
    assert!(error.contains("--release"), "{error}");
    let error = refusal(&shape(&host, &["--class", "bulk", "1"]));
    assert!(error.contains("process 1"), "{error}");
    watched.tell("thread");
    let thread = threads(pid).into_iter().find(|&thread| thread != pid);
    let error = refusal(&shape(
        &host,
        &["--class", "bulk", &thread.unwrap().to_string()],
    ));
    assert!(error.contains("is a thread and no process"), "{error}");
    let error = refusal(&shape(&host, &["--release", &name]));
    assert!(error.contains("not shaped"), "{error}");
    let error = refusal(&shape(&host, &["--class", "bulk"]));
    assert!(error.contains("name a PID"), "{error}");

    said(&host, &["--class", "bulk", &name]);
    let classes = json!([{"name": "bulk", "tag": TAG}, {"name": "video", "tag": 1}]);
    host.set_rules(classes, json!([pid_rule("r", "video", pid)]));
    assert_eq!(ioprio(pid), 0x2001);
    let list = said(&host, &["--list"]);
    assert!(list.contains("rule r of the host goes first"), "{list}");
    said(&host, &["--release", &name]);
    let error = refusal(&shape(&host, &["--class", "bulk", &name]));
    assert!(error.contains("rule r of the host"), "{error}");
    assert_eq!(said(&host, &["--list"]), "");
    watched.end();
}

#[test]
fn root_alone_chooses() {
    const NOBODY: u32 = 65_534;
    let host = start();
    // Others may pass through, as in /run/sluice-agent.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&host.folder, open).unwrap();
    let own = std::process::id().to_string();
    for words in [&["--class", "bulk", &own][..], &["--list"]] {
        let error = refusal(&command(&host).args(words).uid(NOBODY).output().unwrap());
        assert!(error.contains("may not choose"), "{error}");
    }
    assert_eq!(said(&host, &["--list"]), "");
}
