// SPDX-License-Identifier: GPL-2.0-or-later
//! Reports of streams from programs in C, in Python and on the command line to the real agent.
//! The device's memory is plain files. Needs root, a C compiler and python3.

mod common;
use common::*;
use serde_json::json;
use sluice_agent::domain::channel_abi::{STREAM_BYTES, STREAMS, guest};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const IN_C: &str = r#"
#include "sluice-report.h"
int main(int argc, char **argv)
{
    struct sluice_stream stream;
    if (argc != 2 || sluice_stream_open_at(&stream, "in \"C\"", 29.97, argv[1])) {
        return 2;
    }
    stream.frames = 1ULL << 40;
    stream.late = 3;
    stream.lost = 4;
    int error = sluice_stream_report(&stream);
    /* Until the test has seen it: of a process that ended the class is not known. */
    if (!error) {
        getchar();
    }
    sluice_stream_close(&stream);
    return error ? 1 : 0;
}
"#;
const IN_PYTHON: &str = "import sys, sluice_report
with sluice_report.Stream('in Python', 25, path=sys.argv[1], source='gstreamer') as stream:
    stream.frames, stream.lost = 7, 8
    if not stream.report():
        sys.exit(1)
    sys.stdin.read()";

/// (used, tag, source, rate, late, frames, lost, name) of a record.
type Record = (u8, u8, u8, u32, u32, u64, u32, String);

fn record(device: &Device, index: usize) -> Record {
    let bytes = device.pages();
    let at = guest::STREAMS + index * STREAM_BYTES;
    let bytes = &bytes[at..at + STREAM_BYTES];
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let frames = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
    let name = String::from_utf8_lossy(&bytes[40..]);
    let name = name.trim_end_matches('\0').to_owned();
    (
        bytes[4],
        bytes[5],
        bytes[6],
        word(8),
        word(12),
        frames,
        word(32),
        name,
    )
}

/// The record of this name, when it is whole.
fn found(device: &Device, name: &str) -> Option<Record> {
    let records = (0..STREAMS).map(|index| record(device, index));
    let mut used = records.filter(|record| record.0 == 1);
    used.find(|record| record.7 == name)
}

fn start() -> (Host, Device) {
    let (mut host, device) = Host::start_plugged();
    // This process and its children, which report.
    host.assign(std::process::id() as i32, 3);
    (host, device)
}

fn socket(host: &Host) -> std::path::PathBuf {
    host.folder.join("report.sock")
}

fn by_command(host: &Host, more: &[&str], uid: u32) -> Output {
    Command::new(host.reachable_agent())
        .args([
            "report",
            "--name",
            "by command",
            "--rate",
            "60",
            "--frames",
            "9",
        ])
        .args(more)
        .arg("--socket")
        .arg(socket(host))
        .uid(uid)
        .output()
        .unwrap()
}

fn crate_folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn a_program_in_c_reports() {
    let (host, device) = start();
    let (source, program) = (host.folder.join("p.c"), host.folder.join("p"));
    std::fs::write(&source, IN_C).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_folder("include"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(compiled.unwrap().success());
    let mut reporter = Command::new(&program)
        .arg(socket(&host))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let expected = (1, 3, 1, 29_970, 3, 1 << 40, 4, "in _C_".to_owned());
    eventually("the record is there", || {
        found(&device, "in _C_").as_ref() == Some(&expected)
    });
    drop(reporter.stdin.take());
    assert!(reporter.wait().unwrap().success());
    let without = Command::new(&program).arg("/nonexistent").status();
    assert_eq!(without.unwrap().code(), Some(1));
}

#[test]
fn a_program_in_python_reports() {
    let (host, device) = start();
    let python = |path: &Path| {
        Command::new("python3")
            .env("PYTHONPATH", crate_folder("python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(["-c", IN_PYTHON])
            .arg(path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut reporter = python(&socket(&host));
    let expected = (1, 3, 4, 25_000, 0, 7, 8, "in Python".to_owned());
    eventually("the record is there", || {
        found(&device, "in Python").as_ref() == Some(&expected)
    });
    drop(reporter.stdin.take());
    assert!(reporter.wait().unwrap().success());
    let without = python(Path::new("/nonexistent")).wait().unwrap();
    assert_eq!(without.code(), Some(1));
}

#[test]
fn a_command_reports_for_its_own_class() {
    let (host, device) = start();
    assert!(by_command(&host, &["--late", "1"], 0).status.success());
    let expected = (1, 3, 1, 60_000, 1, 9, 0, "by command".to_owned());
    assert_eq!(found(&device, "by command"), Some(expected));
    assert!(by_command(&host, &["--class", "c"], 0).status.success());
    let records = (0..STREAMS).filter(|&index| record(&device, index).0 == 1);
    assert_eq!(records.count(), 1, "it is one stream");
    let refused = by_command(&host, &["--class", "other"], 0);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("granted no class \"other\""), "{said}");
    let refused = by_command(&host, &["--rate", "1e9"], 0);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("--rate"), "{said}");
}

#[test]
fn a_user_reports_for_no_other_class() {
    const NOBODY: u32 = 65_534;
    let (mut host, device) = Host::start_plugged();
    let mut watched = Watched::start();
    let pid = watched.pid();
    host.set_rules(
        json!([{"name": "c", "tag": 1}, {"name": "d", "tag": 2}]),
        json!([
            pid_rule("r", "c", pid),
            pid_rule("own", "d", std::process::id() as i32)
        ]),
    );
    // Others may pass through, as in /run/sluice-agent.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&host.folder, open).unwrap();
    let refused = by_command(&host, &["--class", "c"], NOBODY);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("which is \"d\""), "{said}");
    assert!(by_command(&host, &[], NOBODY).status.success());
    assert_eq!(found(&device, "by command").map(|seen| seen.1), Some(2));
    watched.end();
}

/// Answers each question as a VLC does, with ever more pictures, and asks for a password.
fn vlc_like() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (number, stream) in (1..).zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let mut head = String::new();
            let mut lines = BufReader::new(&stream);
            while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head).unwrap() > 0 {}
            let status = json!({
                "state": "playing",
                "information": {"category": {"Stream 0": {"Frame_rate": "25"}}},
                "stats": {"displayedpictures": 1000 + number, "lostpictures": 3},
            });
            // ":secret"
            let answer = if head.contains("Basic OnNlY3JldA==\r\n") {
                format!("HTTP/1.1 200 OK\r\n\r\n{status}")
            } else {
                "HTTP/1.0 401 Unauthorized\r\n\r\n".to_owned()
            };
            // The one that asked may have been ended.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

#[test]
fn a_vlc_is_asked_over_and_over() {
    let (host, device) = start();
    let password = host.folder.join("password");
    std::fs::write(&password, "wrong\n").unwrap();
    let mut reporter = Command::new(env!("CARGO_BIN_EXE_sluice-agent"))
        .args(["report", "--name", "film", "--vlc"])
        .arg(format!("http://127.0.0.1:{}", vlc_like()))
        .arg("--password-file")
        .arg(&password)
        .arg("--socket")
        .arg(socket(&host))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(reporter.stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    assert!(line.contains("refuses the password"), "{line}");
    std::fs::write(&password, "secret\n").unwrap();
    let line = said.next().unwrap().unwrap();
    assert!(line.ends_with("it reports again"), "{line}");
    let shown = || found(&device, "film").map_or(0, |record| record.5);
    eventually("there is a record", || shown() > 1000);
    let before = shown();
    eventually("the record goes on", || shown() > before);
    let record = found(&device, "film").unwrap();
    assert_eq!((record.1, record.2, record.3, record.6), (3, 2, 25_000, 3));
    reporter.kill().unwrap();
    reporter.wait().unwrap();
}

#[test]
fn an_ffmpegs_progress_is_reported_until_it_ends() {
    let (host, device) = start();
    let mut reporter = Command::new(env!("CARGO_BIN_EXE_sluice-agent"))
        .args([
            "report",
            "--name",
            "cut",
            "--rate",
            "25",
            "--ffmpeg-progress",
            "-",
        ])
        .arg("--socket")
        .arg(socket(&host))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut progress = reporter.stdin.take().unwrap();
    progress
        .write_all(b"frame=50\ndup_frames=2\ndrop_frames=1\nprogress=continue\n")
        .unwrap();
    let expected = (1, 3, 3, 25_000, 2, 50, 1, "cut".to_owned());
    eventually("the record is there", || {
        found(&device, "cut").as_ref() == Some(&expected)
    });
    progress.write_all(b"frame=60\nprogress=end\n").unwrap();
    assert!(reporter.wait().unwrap().success());
    assert_eq!(found(&device, "cut").map(|record| record.5), Some(60));
}

#[test]
fn the_sockets_of_a_process_are_looked_at() {
    let (host, device) = start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    let mut reporter = Command::new(env!("CARGO_BIN_EXE_sluice-agent"))
        .args([
            "report",
            "--name",
            "flow",
            "--desired",
            "102400",
            "--sockets",
        ])
        .arg(std::process::id().to_string())
        .arg("--socket")
        .arg(socket(&host))
        .spawn()
        .unwrap();
    let shown = || found(&device, "flow").map(|record| record.5);
    eventually("the record is there", || shown().is_some());
    let before = shown().unwrap();
    let mut bytes = [0; 51_200];
    ours.write_all(&bytes).unwrap();
    theirs.read_exact(&mut bytes).unwrap();
    eventually("its frames are KiB", || shown() >= Some(before + 50));
    let record = found(&device, "flow").unwrap();
    assert_eq!((record.1, record.2, record.3), (3, 5, 100_000));
    reporter.kill().unwrap();
    reporter.wait().unwrap();
}

#[test]
fn a_host_that_watches_is_told_of_round_trips() {
    let (mut host, _device) = start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    assert_eq!(host.call("watch_streams", json!({}))["result"], json!({}));
    let reporter = Command::new(env!("CARGO_BIN_EXE_sluice-agent"))
        .args(["report", "--name", "flow", "--desired", "102400"])
        .arg("--sockets")
        .arg(std::process::id().to_string())
        .arg("--socket")
        .arg(socket(&host))
        .spawn();
    let mut reporter = reporter.unwrap();
    let told = loop {
        ours.write_all(&[0; 1024]).unwrap();
        theirs.read_exact(&mut [0; 1024]).unwrap();
        let message = host.read_message();
        if message["method"] == "streams" {
            break message["params"]["streams"][0].clone();
        }
    };
    reporter.kill().unwrap();
    reporter.wait().unwrap();
    assert_eq!((&told["record"], &told["tag"]), (&json!(0), &json!(3)));
    let (now, least) = (&told["round_trip_us"], &told["least_us"]);
    assert!(now.as_u64() > Some(0) && least.as_u64() > Some(0), "{told}");
}

#[test]
fn garbage_and_floods_leave_the_agent_well() {
    let (mut host, device) = start();
    let sender = UnixDatagram::unbound().unwrap();
    sender.connect(socket(&host)).unwrap();
    sender.set_nonblocking(true).unwrap();
    let mut sent = 0;
    for number in 0..20_000_u32 {
        let text = match number % 3 {
            0 => format!(r#"{{"name":"{}","rate":1,"frames":1}}"#, number % 300),
            1 => "{".repeat(1 + number as usize % 2000),
            _ => String::from("\0\u{7}nonsense"),
        };
        sent += usize::from(sender.send(text.as_bytes()).is_ok());
    }
    assert!(sent > 0);
    assert!(host.call("get_processes", json!({}))["result"].is_object());
    let records = (0..STREAMS).filter(|&index| record(&device, index).0 == 1);
    assert!(records.count() <= STREAMS);
    eventually("another one is refused or taken", || {
        let output = by_command(&host, &[], 0);
        output.status.success() || String::from_utf8_lossy(&output.stderr).contains("64 streams")
    });
}
