// SPDX-License-Identifier: GPL-2.0-or-later
//! The real agent on real processes: the kernel's view of their threads and
//! sockets. Needs root.

mod common;
use common::*;
use serde_json::json;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const BEST_EFFORT_2: u16 = 0x4002;
const TAG_3: u16 = 0x2003;

/// The TOS byte of a tag: DSCP `t << 2 | 3`, ECN bits 0.
fn tos(tag: u8) -> u8 {
    (tag << 2 | 3) << 2
}

#[test]
fn every_thread_is_tagged_and_restored() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    for _ in 0..3 {
        watched.tell("thread");
    }
    let pid = watched.pid();
    let own = threads(pid)[2];
    set_ioprio(own, BEST_EFFORT_2);
    let before = ioprios(pid);
    assert_eq!(before.len(), 4);

    host.assign(pid, 3);
    assert_eq!(ioprios(pid), [TAG_3; 4], "at once, not at the next scan");
    watched.tell("thread");
    eventually("a new thread is tagged", || ioprios(pid) == [TAG_3; 5]);

    host.no_rules();
    assert_eq!(ioprios(pid)[..4], before[..]);
    assert_eq!(ioprio(own), BEST_EFFORT_2);
    assert_eq!(
        ioprios(pid)[4],
        before[0],
        "a thread born tagged gets what its process had"
    );
}

#[test]
fn a_change_from_outside_is_tagged_over_and_kept_for_later() {
    let mut host = Host::start();
    let watched = Watched::start();
    let pid = watched.pid();
    host.assign(pid, 3);
    set_ioprio(pid, BEST_EFFORT_2);
    eventually("the tag is set again", || ioprio(pid) == TAG_3);
    host.no_rules();
    assert_eq!(ioprio(pid), BEST_EFFORT_2);
}

#[test]
fn a_change_of_class_keeps_the_originals() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    let pid = watched.pid();
    let (before, marks) = (ioprios(pid), watched.marks());
    host.assign(pid, 3);
    host.assign(pid, 5);
    assert_eq!(ioprio(pid), 0x2005);
    assert_eq!(watched.marks()["udp"], tos(5));
    host.no_rules();
    assert_eq!((ioprios(pid), watched.marks()), (before, marks));
}

#[test]
fn sockets_are_marked_and_restored() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    watched.tell("accept");
    let pid = watched.pid();
    let before = watched.marks();
    assert_eq!(
        (&before["udp"], &before["listener"]),
        (&json!(0x10), &json!(0))
    );

    host.assign(pid, 3);
    watched.tell("accept");
    let marked = watched.marks();
    for socket in ["udp", "listener", "udp6", "udp6_class"] {
        assert_eq!(marked[socket], tos(3), "{socket}");
    }
    assert_eq!(
        marked["accepted"],
        json!([tos(3), tos(3)]),
        "a new connection has its listener's mark"
    );
    assert_eq!(
        marked["udp_priority"], before["udp_priority"],
        "the guest's own queueing is untouched"
    );

    // The second connection is seen at a scan; only then can it be restored.
    eventually("the state names four sockets and a connection", || {
        let state = std::fs::read_to_string(host.folder.join("state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        state["sockets"].as_object().unwrap().len() == 5
    });
    host.no_rules();
    let after = watched.marks();
    for socket in ["udp", "listener", "udp6", "udp6_class", "udp_priority"] {
        assert_eq!(after[socket], before[socket], "{socket}");
    }
    assert_eq!(after["accepted"], json!([0, 0]));
}

#[test]
fn marks_a_program_sets_later_are_marked_over_and_kept() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    host.assign(watched.pid(), 3);
    watched.tell("own-tos");
    eventually("the socket is marked again", || {
        watched.marks()["udp"] == tos(3)
    });
    host.no_rules();
    assert_eq!(watched.marks()["udp"], 0x08);
}

#[test]
fn children_inherit_and_orphans_keep() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    let early: i32 = watched.tell("spawn").parse().unwrap();
    host.assign(watched.pid(), 3);
    assert_eq!(ioprio(early), TAG_3, "a child from before belongs too");
    let row = host.row(early).unwrap();
    assert_eq!(
        (&row["class"], &row["inherited"]),
        (&json!("c"), &json!(true))
    );

    let late: i32 = watched.tell("spawn").parse().unwrap();
    assert_eq!(ioprio(late), TAG_3, "the kernel hands the priority down");
    let (_early, _late) = (Stray(early), Stray(late));
    eventually("the late child is listed", || {
        host.row(late).is_some_and(|row| row["class"] == "c")
    });
    watched.end();
    eventually("the parent is gone from the table", || {
        host.row(watched.pid()).is_none()
    });
    assert_eq!(
        host.row(late).unwrap()["class"],
        "c",
        "an orphan keeps its class"
    );
    assert_eq!(ioprio(late), TAG_3);
    host.no_rules();
    assert_eq!((ioprio(early), ioprio(late)), (0, 0));
}

#[test]
fn an_orphan_of_an_unseen_parent_is_found_by_its_tag() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    // A tag that no other test uses: an agent that runs beside this one would take the
    // orphan for its own.
    host.assign(watched.pid(), 7);
    let orphan: i32 = watched.tell("orphan").parse().unwrap();
    let _orphan = Stray(orphan);
    eventually("it is in the class", || {
        host.row(orphan).is_some_and(|row| row["class"] == "c")
    });
    host.no_rules();
    eventually("it is restored", || ioprio(orphan) == 0);
}

/// Its own rule decides its class; the tag it was born with is not its own all the same.
#[test]
fn a_matched_orphan_of_an_unseen_parent_is_restored() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    let sleep = std::fs::canonicalize("/bin/sleep").unwrap();
    let own = json!({"exe": sleep, "cmdline": "^sleep 303$"});
    host.set_rules(
        // Of no other test here: see above.
        json!([{"name": "a", "tag": 4}, {"name": "b", "tag": 1}]),
        json!([
            pid_rule("parent", "a", watched.pid()),
            {"id": "own", "class": "b", "match": own},
        ]),
    );
    let orphan: i32 = watched.tell("orphan-of-its-own").parse().unwrap();
    let _orphan = Stray(orphan);
    eventually("it is in its class", || ioprio(orphan) == 0x2001);
    host.no_rules();
    assert_eq!(ioprio(orphan), 0);
}

/// As a daemon: nothing in /proc tells from whom it came, the kernel's events do.
#[test]
fn an_orphan_in_a_session_of_its_own_keeps_its_class() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    host.assign(watched.pid(), 3);
    for _ in 0..20 {
        let orphan: i32 = watched.tell("orphan-in-a-session").parse().unwrap();
        let _orphan = Stray(orphan);
        eventually("it is in the class", || {
            host.row(orphan).is_some_and(|row| row["class"] == "c")
        });
        host.no_rules();
        // An event of its start may be under way while the rules go: the next scan sees to it.
        eventually("it is restored", || ioprio(orphan) == 0);
        host.assign(watched.pid(), 3);
    }
}

#[test]
fn a_storm_of_processes_hides_none_that_stays() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    let sleep = std::fs::canonicalize("/bin/sleep").unwrap();
    let own = json!({"exe": sleep, "cmdline": "^sleep 306$"});
    host.set_rules(
        json!([{"name": "a", "tag": 4}, {"name": "b", "tag": 1}]),
        json!([
            pid_rule("parent", "a", watched.pid()),
            {"id": "own", "class": "b", "match": own},
        ]),
    );
    let stays = Stray(watched.tell("storm").parse().unwrap());
    eventually("it is in its own class", || ioprio(stays.0) == 0x2001);
    eventually("the table says so", || {
        host.row(stays.0).is_some_and(|row| row["class"] == "b")
    });
    host.no_rules();
    assert_eq!(ioprio(stays.0), 0);
}

#[test]
fn an_orphan_keeps_its_class_when_the_agent_is_restarted() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    host.assign(watched.pid(), 3);
    let child: i32 = watched.tell("spawn").parse().unwrap();
    let _child = Stray(child);
    eventually("it is listed", || {
        host.row(child).is_some_and(|row| row["class"] == "c")
    });
    watched.end();
    eventually("the parent is gone from the table", || {
        host.row(watched.pid()).is_none()
    });

    host.restart(libc::SIGTERM);
    eventually("it is tagged again", || ioprio(child) == TAG_3);
    assert_eq!(host.row(child).unwrap()["class"], "c");

    host.end(libc::SIGKILL);
    assert!(host.untag());
    assert_eq!(ioprio(child), 0);
    host.start_again();
    eventually("it is tagged once more", || ioprio(child) == TAG_3);
    host.no_rules();
    assert_eq!(ioprio(child), 0);
}

#[test]
fn what_a_main_thread_leaves_behind_is_tagged() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    watched.tell("thread");
    let pid = watched.pid();
    let left = threads(pid)[1];
    watched.tell("end-main");
    eventually("the main thread has ended", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')')
            .unwrap()
            .1
            .trim_start()
            .starts_with('Z')
    });
    host.assign(pid, 3);
    assert_eq!(ioprio(left), TAG_3);
    host.no_rules();
    assert_eq!(ioprio(left), 0);
}

#[test]
fn a_program_started_in_the_same_process_is_noticed() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    let pid = watched.pid();
    let sleep = std::fs::canonicalize("/bin/sleep").unwrap();
    let pattern = "^sleep 301$";
    let rules = json!([{"id": "s", "class": "c", "match": {"exe": sleep, "cmdline": pattern}}]);
    host.set_rules(json!([{"name": "c", "tag": 6}]), rules);
    assert_eq!(ioprio(pid), 0);
    watched.send("exec");
    eventually("it is tagged", || ioprio(pid) == 0x2006);
    let row = host.row(pid).unwrap();
    assert_eq!(
        (&row["rule"], &row["inherited"]),
        (&json!("s"), &json!(false))
    );
    host.no_rules();
    assert_eq!(ioprio(pid), 0);
}

#[test]
fn a_program_is_tagged_by_any_link_to_it_also_by_one_made_later() {
    let mut host = Host::start();
    let place = |name: &str| host.folder.join(name);
    let file = place("real/program");
    std::fs::create_dir(place("real")).unwrap();
    // Not by this process: while it has the file open to write, a fork of another test
    // may keep it from being started.
    let copied = Command::new("cp")
        .args([&Watched::program(), &file])
        .status();
    assert!(copied.unwrap().success());
    symlink("real", place("linked")).unwrap();
    let rule = |path: &Path| json!({"id": "r", "class": "c", "match": {"exe": path}});
    let classes = || json!([{"name": "c", "tag": 2}]);

    let direct = Watched::start_at(&file);
    let linked = place("linked/program");
    assert_eq!(
        host.set_rules(classes(), json!([rule(&linked)]))["matched"],
        1
    );
    assert_eq!(ioprio(direct.pid()), 0x2002);
    host.no_rules();

    let later = host.folder.join("later");
    assert_eq!(
        host.set_rules(classes(), json!([rule(&later)]))["matched"],
        0
    );
    symlink("linked/program", &later).unwrap();
    let called = Watched::start_at(&later);
    eventually("the link is followed", || ioprio(called.pid()) == 0x2002);
    // Of another name than the link's, and started by that.
    eventually("the file's name counts too", || {
        ioprio(direct.pid()) == 0x2002
    });

    // An upgrade takes the file away; the processes run the same program.
    std::fs::remove_file(&file).unwrap();
    assert_eq!(
        host.set_rules(classes(), json!([rule(&file)]))["matched"],
        2
    );
}

#[test]
fn a_pid_with_another_start_time_never_matches() {
    let mut host = Host::start();
    let watched = Watched::start();
    let mut rule = pid_rule("r", "c", watched.pid());
    rule["match"]["start_time_ticks"] = json!(start_time(watched.pid()) + 1);
    let result = host.set_rules(json!([{"name": "c", "tag": 3}]), json!([rule]));
    assert_eq!(result["matched"], 0);
    assert_eq!(ioprio(watched.pid()), 0);
}

#[test]
fn a_clean_stop_restores_everything() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    let before = watched.marks();
    host.assign(watched.pid(), 3);
    assert_eq!(ioprio(watched.pid()), TAG_3);
    host.end(libc::SIGTERM);
    assert_eq!(ioprio(watched.pid()), 0);
    assert_eq!(watched.marks(), before);
}

#[test]
fn a_successor_undoes_what_a_killed_agent_did() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    let pid = watched.pid();
    set_ioprio(pid, BEST_EFFORT_2);
    let before = watched.marks();
    host.assign(pid, 3);
    host.restart(libc::SIGKILL);
    assert_eq!(ioprio(pid), TAG_3);
    let row = host.row(pid).unwrap();
    assert_eq!(row["class"], "c", "the rules are in force again");
    host.no_rules();
    assert_eq!(ioprio(pid), BEST_EFFORT_2);
    assert_eq!(watched.marks(), before);
}

#[test]
fn what_a_killed_agent_left_can_be_taken_off_without_another_one() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    let pid = watched.pid();
    set_ioprio(pid, BEST_EFFORT_2);
    let before = watched.marks();
    host.assign(pid, 3);
    assert!(!host.untag(), "not while an agent has them");
    assert_eq!(ioprio(pid), TAG_3);

    host.end(libc::SIGKILL);
    let child: i32 = watched.tell("spawn").parse().unwrap();
    let _child = Stray(child);
    assert_eq!((ioprio(pid), ioprio(child)), (TAG_3, TAG_3));
    assert!(host.untag());
    assert_eq!(ioprio(pid), BEST_EFFORT_2);
    assert_eq!(ioprio(child), 0, "nobody had written down whose it was");
    assert_eq!(watched.marks(), before);

    host.start_again();
    eventually("a successor takes the rules up", || ioprio(pid) == TAG_3);
}

#[test]
fn tags_stay_where_systemd_starts_the_next_agent_and_nowhere_else() {
    let mut host = Host::start();
    let watched = Watched::start();
    host.assign(watched.pid(), 3);
    host.end(libc::SIGKILL);
    for (result, status) in [
        ("signal", "KILL"),
        ("oom-kill", "KILL"),
        ("core-dump", "SEGV"),
        ("exit-code", "1"),
    ] {
        assert!(host.untag_after(result, status));
        assert_eq!(ioprio(watched.pid()), TAG_3, "{result} {status}");
    }
    for (result, status) in [("timeout", "KILL"), ("exit-code", "2"), ("success", "0")] {
        host.start_again();
        eventually("tagged again", || ioprio(watched.pid()) == TAG_3);
        host.end(libc::SIGKILL);
        assert!(host.untag_after(result, status));
        assert_eq!(ioprio(watched.pid()), 0, "{result} {status}");
    }
}

#[test]
fn where_no_agent_was_killed_there_is_nothing_to_take_off() {
    let mut host = Host::start();
    let watched = Watched::start();
    host.assign(watched.pid(), 3);
    host.end(libc::SIGTERM);
    // Somebody else's, since then.
    set_ioprio(watched.pid(), TAG_3);
    assert!(host.untag());
    assert_eq!(ioprio(watched.pid()), TAG_3);
    std::fs::remove_file(host.folder.join("state.json")).unwrap();
    assert!(host.untag());
}

#[test]
fn what_started_since_the_last_scan_is_restored_too() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    host.assign(watched.pid(), 3);
    let child: i32 = watched.tell("spawn").parse().unwrap();
    watched.tell("accept");
    assert_eq!(ioprio(child), TAG_3);
    host.no_rules();
    let _child = Stray(child);
    assert_eq!(ioprio(child), 0);
    assert_eq!(watched.marks()["accepted"], json!([0]));
}

#[test]
fn what_started_before_a_change_of_class_goes_back_to_none() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    host.assign(watched.pid(), 3);
    let child: i32 = watched.tell("spawn").parse().unwrap();
    let _child = Stray(child);
    host.assign(watched.pid(), 5);
    assert_eq!(ioprio(child), 0x2005);
    host.no_rules();
    assert_eq!(ioprio(child), 0);
}

#[test]
fn a_clean_stop_restores_what_started_since_the_last_scan() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    host.assign(watched.pid(), 3);
    let child: i32 = watched.tell("spawn").parse().unwrap();
    let _child = Stray(child);
    host.end(libc::SIGTERM);
    assert_eq!(ioprio(child), 0);
}

#[test]
fn a_successor_undoes_what_was_not_yet_written_down() {
    let mut host = Host::start();
    let sleep = std::fs::canonicalize("/bin/sleep").unwrap();
    let rules =
        json!([{"id": "s", "class": "c", "match": {"exe": sleep, "cmdline": "^sleep 298$"}}]);
    host.set_rules(json!([{"name": "c", "tag": 5}]), rules);
    let mut child = std::process::Command::new("sleep")
        .arg("298")
        .spawn()
        .unwrap();
    let pid = child.id() as i32;
    eventually("it is tagged", || ioprio(pid) == 0x2005);
    host.restart(libc::SIGKILL);
    let class = host.row(pid).unwrap()["class"].clone();
    host.no_rules();
    let after = ioprio(pid);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((class, after), (json!("c"), 0));
}

#[test]
fn a_socket_that_takes_no_mark_keeps_no_other_from_it() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    // A raw IPv6 socket knows no TOS, an MPTCP one no traffic class.
    watched.tell("odd");
    host.assign(watched.pid(), 3);
    assert_eq!(watched.marks()["late"], tos(3));
    host.no_rules();
    assert_eq!(watched.marks()["late"], 0);
}

#[test]
fn a_priority_that_a_program_sets_later_stays() {
    let mut host = Host::start();
    let mut watched = Watched::start();
    host.assign(watched.pid(), 3);
    watched.tell("own-priority");
    host.no_rules();
    let marks = watched.marks();
    assert_eq!(
        (&marks["udp"], &marks["udp_priority"]),
        (&json!(0x10), &json!(5))
    );
}

#[test]
fn a_service_of_init_with_a_priority_of_its_own_is_no_orphan() {
    let mut host = Host::start();
    let watched = Watched::start();
    host.assign(watched.pid(), 2);
    // As init starts a service: a session of its own, and in that its priority.
    let words = ["--fork", "ionice", "-c1", "-n2", "sleep", "297"];
    let started = std::process::Command::new("setsid").args(words).status();
    assert!(started.unwrap().success());
    let service = Stray(found_by_cmdline("sleep 297"));
    eventually("it is listed", || host.row(service.0).is_some());
    assert_eq!(host.row(service.0).unwrap()["class"], json!(null));
    host.no_rules();
    assert_eq!(ioprio(service.0), 0x2002);
}
