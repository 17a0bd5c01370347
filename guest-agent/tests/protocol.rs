// SPDX-License-Identifier: GPL-2.0-or-later
//! The real agent against good hosts, bad hosts, and none. Needs root.

mod common;
use common::*;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

/// poll(2) refuses more descriptors than this, and the agent waits for a few. It has more open.
const NO_FILE_MORE: u64 = 5;

#[test]
fn hello_tells_who_answers() {
    let mut host = Host::start();
    let result = host.call("hello", json!({"protocol": 1}))["result"].clone();
    assert_eq!(result["protocol"], 1);
    assert_eq!(result["agent_version"], env!("CARGO_PKG_VERSION"));
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(result["boot_id"], boot_id.trim());
    assert!(result["max_tag"] == 7 || result["max_tag"] == 15);
    assert!(result["kernel"].is_string() && result["hostname"].is_string());

    // The highest tag offered is one the kernel really takes.
    let watched = Watched::start();
    let tag = result["max_tag"].as_u64().unwrap() as u8;
    host.assign(watched.pid(), tag);
    assert_eq!(ioprio(watched.pid()), 0x2000 | u16::from(tag));
}

#[test]
fn tables_come_by_themselves_once_the_host_has_spoken() {
    let mut host = Host::start();
    // A test that fails leaves it behind: the limit ends it.
    let mut spinner = Command::new("sh")
        .args(["-c", "ulimit -t 60; while :; do :; done"])
        .spawn()
        .unwrap();
    host.no_rules();
    let mut share = 0.0;
    for _ in 0..30 {
        let message = host.read_message();
        if message["method"] == "log" {
            // There is no device sluice-channel here.
            continue;
        }
        assert_eq!(message["method"], "processes");
        let table = &message["params"];
        assert_eq!(
            (&table["interval_ms"], &table["truncated"]),
            (&json!(200), &json!(false))
        );
        let rows = table["processes"].as_array().unwrap();
        let row = rows.iter().find(|row| row["pid"] == spinner.id()).unwrap();
        share = row["cpu_ratio"].as_f64().unwrap();
        assert!((0.0..1.5).contains(&share), "{share}");
        if share > 0.02 {
            break;
        }
    }
    spinner.kill().unwrap();
    spinner.wait().unwrap();
    // Of a machine that is busy with other work it gets little.
    assert!(share > 0.02, "a busy loop uses a processor: {share}");
}

#[test]
fn without_a_host_a_short_interval_costs_nothing() {
    const WATCHED: Duration = Duration::from_secs(3);
    let mut host = Host::start();
    let watched = Watched::start();
    let mut params = json!({"revision": 1, "interval_ms": 100,
        "classes": [{"name": "c", "tag": 1}]});
    params["rules"] = json!([pid_rule("r", "c", watched.pid())]);
    assert!(host.call("set_rules", params)["result"].is_object());
    let table = host.call("get_processes", json!({}));
    let processes = table["result"]["processes"].as_array().unwrap().len() as u64;
    host.reconnect();
    let agent = host.agent.id() as i32;
    // It reads the kernel's types page by page, once.
    eventually("no thread reads them", || {
        let names = threads(agent).into_iter().map(|tid| {
            std::fs::read_to_string(format!("/proc/{agent}/task/{tid}/comm")).unwrap_or_default()
        });
        names.into_iter().all(|name| name.trim() != "opening")
    });
    let (before, first_id) = (reads(host.agent.id() as i32), last_id());
    std::thread::sleep(WATCHED);
    let count = reads(host.agent.id() as i32) - before;
    let started = last_id().saturating_sub(first_id);
    // Three full scans, and once the five files of its facts; not thirty scans. A process of
    // another test that starts meanwhile is looked at when it starts and at each exec.
    let most = 16 * (processes + started);
    assert!(
        count < most,
        "{count} reads of {processes} processes and {started} new"
    );
}

#[test]
fn the_same_rules_again_cost_no_scan() {
    let mut host = Host::start();
    let watched = Watched::start();
    let mut params = json!({"revision": 1, "classes": [{"name": "c", "tag": 1}]});
    params["rules"] = json!([pid_rule("r", "c", watched.pid())]);
    let mut cost = |params: &Value, times: u64| {
        let before = reads(host.agent.id() as i32);
        for _ in 0..times {
            let answer = host.call("set_rules", params.clone());
            assert_eq!(
                answer["result"],
                json!({"revision": params["revision"], "matched": 1})
            );
        }
        reads(host.agent.id() as i32) - before
    };
    cost(&params, 1);
    params["revision"] = json!(2);
    let new = cost(&params, 1);
    // Scans that are due meanwhile included.
    let again = cost(&params, 40);
    assert!(
        again < 20 * new,
        "{again} reads for 40 times the same, {new} for new ones"
    );
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let mut host = Host::start();
    let watched = Watched::start();
    let pid = watched.pid();
    host.assign(pid, 3);
    let revision = host.call("get_processes", json!({}))["result"]["revision"].clone();
    let rule = |condition: Value| json!({"revision": 99, "classes": [{"name": "c", "tag": 4}], "rules": [{"id": "r", "class": "c", "match": condition}]});
    for (params, field) in [
        (json!([]), "params"),
        (rule(json!({"cmdline": "("})), "rules[0].match.cmdline"),
        (rule(json!({"pid": pid})), "rules[0].match.start_time_ticks"),
        (
            json!({"revision": 99, "classes": [{"name": "c", "tag": 99}], "rules": []}),
            "classes[0].tag",
        ),
        (
            json!({"revision": 99, "classes": [], "rules": [{"id": "r", "class": "x", "match": {"user": "root"}}]}),
            "rules[0].class",
        ),
        (
            json!({"revision": 1e99, "classes": [], "rules": []}),
            "revision",
        ),
    ] {
        let error = host.call("set_rules", params)["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]["field"]),
            (&json!(-32602), &json!(field))
        );
        assert!(error["data"]["remedy"].is_string());
    }
    assert_eq!(host.call("format_disk", json!({}))["error"]["code"], -32601);
    for garbage in [&b"\x00\xff\xfe\n"[..], b"{\"jsonrpc\"\n", b"[[[[\n"] {
        host.send_bytes(garbage);
        let answer = host.read_answer();
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(-32700), &Value::Null)
        );
    }
    let table = host.call("get_processes", json!({}))["result"].clone();
    assert_eq!(table["revision"], revision);
    assert_eq!(ioprio(pid), 0x2003);
}

#[test]
fn a_rule_is_refused_by_itself_if_the_host_knows_of_that() {
    let mut host = Host::start();
    let watched = Watched::start();
    let bad = json!({"id": "bad", "class": "c", "match": {"cmdline": "("}});
    let params = |revision: u64| {
        json!({"revision": revision, "classes": [{"name": "c", "tag": 4}],
            "rules": [bad, pid_rule("good", "c", watched.pid())]})
    };
    let refused = host.call("set_rules", params(1))["error"].clone();
    assert_eq!(refused["data"]["field"], "rules[0].match.cmdline");
    assert_eq!(ioprio(watched.pid()), 0);

    let hello = host.call("hello", json!({"protocol": 2}));
    assert_eq!(hello["result"]["protocol"], 2);
    let result = host.call("set_rules", params(2))["result"].clone();
    assert_eq!(
        (&result["revision"], &result["matched"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(result["refused"].as_array().unwrap().len(), 1);
    assert_eq!(result["refused"][0]["id"], "bad");
    let why = result["refused"][0]["why"].as_str().unwrap();
    assert!(why.starts_with("match.cmdline: "), "{why}");
    assert_eq!(ioprio(watched.pid()), 0x2004);
}

#[test]
fn a_preview_names_the_processes_and_tags_none() {
    let mut host = Host::start();
    let watched = Watched::start();
    let pid = watched.pid();
    let program = Watched::program();
    let preview = |host: &mut Host, condition: Value| {
        let answer = host.call("preview_rule", json!({"match": condition}));
        answer["result"]["pids"].as_array().cloned()
    };
    let exe = std::fs::canonicalize(&program).unwrap();
    let found = preview(&mut host, json!({"exe": exe})).unwrap();
    assert!(found.contains(&json!(pid)), "{found:?}");
    let nobody = json!({"pid": pid, "start_time_ticks": 1});
    assert_eq!(preview(&mut host, nobody).unwrap(), [] as [Value; 0]);
    // Not of init, and not of the agent.
    let found = preview(&mut host, json!({"cmdline": "."})).unwrap();
    for exempt in [1, host.agent.id()] {
        assert!(!found.contains(&json!(exempt)), "{exempt}");
    }
    assert_eq!(ioprio(pid), 0);

    for (condition, field) in [
        (json!({"cmdline": "("}), "match.cmdline"),
        (json!({}), "match"),
        (json!(7), "match"),
    ] {
        let refused = host.call("preview_rule", json!({"match": condition}));
        assert_eq!(refused["error"]["code"], -32602);
        assert_eq!(refused["error"]["data"]["field"], field);
    }
    let refused = host.call("preview_rule", json!([]));
    assert_eq!(refused["error"]["data"]["field"], "match");
}

#[test]
fn a_huge_line_is_discarded_and_the_next_one_served() {
    let mut host = Host::start();
    let mut line = vec![b'x'; 2 << 20];
    line.push(b'\n');
    host.send_bytes(&line);
    assert_eq!(host.read_answer()["error"]["code"], -32700);
    assert_eq!(
        host.call("hello", json!({"protocol": 1}))["result"]["protocol"],
        1
    );
}

#[test]
fn a_request_cut_in_pieces_is_one_request() {
    let mut host = Host::start();
    for byte in
        b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"hello\",\"params\":{\"protocol\":1}}\n"
    {
        host.send_bytes(&[*byte]);
    }
    assert_eq!(host.read_answer()["id"], "x");
}

#[test]
fn a_host_that_does_not_read_stops_no_tagging() {
    let mut host = Host::start();
    let sleep = std::fs::canonicalize("/bin/sleep").unwrap();
    let rules =
        json!([{"id": "s", "class": "c", "match": {"exe": sleep, "cmdline": "^sleep 299$"}}]);
    host.set_rules(json!([{"name": "c", "tag": 6}]), rules);
    fill_without_reading(&mut host);
    let mut child = Command::new("sleep").arg("299").spawn().unwrap();
    let pid = child.id() as i32;
    eventually("it is tagged all the same", || ioprio(pid) == 0x2006);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_host_that_does_not_read_costs_neither_memory_nor_time() {
    let mut host = Host::start();
    host.no_rules();
    fill_without_reading(&mut host);
    let agent = host.agent.id() as i32;
    // It tries to write at each turn of its loop: five times a second for tables.
    eventually("the agent waits", || {
        let before = writes(agent);
        std::thread::sleep(Duration::from_millis(1000));
        writes(agent) - before < 20
    });
    // Two lines of a mebibyte, a table, and the agent itself.
    let rss_kb = rss_kb(agent);
    assert!(
        rss_kb < 24 * 1024,
        "unread answers are bounded: {rss_kb} kB"
    );
}

/// Requests without end from a host that reads no answer. The agent stops
/// reading when enough is unread, so not all of these fit.
fn fill_without_reading(host: &mut Host) {
    host.stream.get_ref().set_nonblocking(true).unwrap();
    let request = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"get_processes\"}\n";
    let mut refusals = 0;
    while refusals < 20 {
        if std::io::Write::write(host.stream.get_mut(), request).is_err() {
            refusals += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn rules_outlive_the_connection() {
    let mut host = Host::start();
    let watched = Watched::start();
    host.assign(watched.pid(), 3);
    host.send_bytes(b"{\"jsonrpc\": half a line");
    host.reconnect();
    assert_eq!(
        host.call("hello", json!({"protocol": 1}))["result"]["protocol"],
        1
    );
    assert_eq!(host.row(watched.pid()).unwrap()["class"], "c");
    assert_eq!(ioprio(watched.pid()), 0x2003);
}

#[test]
fn command_line_checks_rules_and_prints_the_table() {
    let agent = env!("CARGO_BIN_EXE_sluice-agent");
    let table = Command::new(agent).arg("--once").output().unwrap();
    let table: Value = serde_json::from_slice(&table.stdout).unwrap();
    assert!(
        table["processes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["pid"] == std::process::id())
    );

    let file = std::env::temp_dir().join(format!("sluice-rules-{}.json", std::process::id()));
    let mut rules = json!({"revision": 1, "classes": [{"name": "c", "tag": 1}],
        "rules": [{"id": "me", "class": "c", "match": {"pid": std::process::id(), "start_time_ticks": start_time(std::process::id() as i32)}}]});
    std::fs::write(&file, rules.to_string()).unwrap();
    let good = Command::new(agent)
        .arg("check-rules")
        .arg(&file)
        .output()
        .unwrap();
    let shown = String::from_utf8(good.stdout).unwrap();
    assert!(
        good.status.success() && shown.contains(&std::process::id().to_string()),
        "{shown}"
    );
    assert_eq!(
        ioprio(std::process::id() as i32),
        0,
        "checking touches nothing"
    );

    rules["classes"][0]["tag"] = json!(16);
    std::fs::write(&file, rules.to_string()).unwrap();
    let bad = Command::new(agent)
        .arg("check-rules")
        .arg(&file)
        .output()
        .unwrap();
    assert!(!bad.status.success());
    assert!(
        String::from_utf8(bad.stderr)
            .unwrap()
            .contains("classes[0].tag")
    );
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_journal_that_is_gone_does_not_end_the_agent() {
    let (stderr, journal) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(journal);
    let mut host = Host::start_with(std::os::fd::OwnedFd::from(stderr).into());
    host.no_rules();
    // It cannot write its state now, and its message has no reader.
    limit_files(host.agent.id() as i32, NO_FILE_MORE);
    host.no_rules();
    assert!(host.call("hello", json!({"protocol": 1}))["result"].is_object());
}

#[test]
fn new_rules_while_no_file_can_be_opened_are_applied_later() {
    let mut host = Host::start();
    let watched = Watched::start();
    host.assign(watched.pid(), 3);
    let agent = host.agent.id() as i32;
    let usual = limit_files(agent, NO_FILE_MORE);
    host.no_rules();
    assert_eq!(host.row(watched.pid()).unwrap()["class"], Value::Null);
    limit_files(agent, usual);
    eventually("the tag is off", || ioprio(watched.pid()) == 0);
}

#[test]
fn a_second_agent_leaves_the_first_ones_tags_alone() {
    let mut host = Host::start();
    let watched = Watched::start();
    host.assign(watched.pid(), 3);
    let mut second = Command::new(env!("CARGO_BIN_EXE_sluice-agent"))
        .arg("--port")
        .arg(host.folder.join("no port"))
        .arg("--state")
        .arg(host.folder.join("state.json"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    // SAFETY: takes plain integers; the child is not reaped yet.
    unsafe { libc::kill(second.id() as i32, libc::SIGTERM) };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut second.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("state.json"), "{said}");
    assert_eq!(ioprio(watched.pid()), 0x2003);
}

#[test]
fn a_name_of_control_characters_is_shown_escaped() {
    let mut child = Command::new("sh");
    // SAFETY: prctl is safe to call between fork and exec; it is undone by exec, so
    // the child does not exec: it waits to be killed.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut child, || {
            libc::prctl(libc::PR_SET_NAME, c"a\n\x1b[31mb".as_ptr());
            loop {
                libc::pause();
            }
        })
    };
    // spawn() returns when the child has run its program, which it never does.
    let spawner = std::thread::spawn(move || child.spawn().map(|mut child| child.wait()));
    let pid = found_by_comm("a\n\x1b[31mb");
    let file = std::env::temp_dir().join(format!("sluice-comm-{}.json", std::process::id()));
    let rules = json!({"revision": 1, "classes": [{"name": "c", "tag": 1}],
        "rules": [pid_rule("r", "c", pid)]});
    std::fs::write(&file, rules.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sluice-agent"))
        .arg("check-rules")
        .arg(&file)
        .output()
        .unwrap();
    // SAFETY: takes plain integers; the child is not reaped yet.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let _ = spawner.join();
    std::fs::remove_file(&file).unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains(r"a\n\u{1b}[31mb"), "{shown:?}");
}
