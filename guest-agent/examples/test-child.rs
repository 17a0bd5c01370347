// SPDX-License-Identifier: GPL-2.0-or-later
//! A program with threads, sockets and children of its own, commanded by
//! lines on its standard input. It answers every line with one line.

use std::io::{BufRead, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

const OWN_TOS: i32 = 0x10;

struct Sockets {
    udp: UdpSocket,
    listener: TcpListener,
    udp6: UdpSocket,
    accepted: Vec<(TcpStream, TcpStream)>,
    odd: Vec<OwnedFd>,
    /// Opened after the odd ones.
    late: Option<UdpSocket>,
}

fn option(fd: &impl AsRawFd, level: i32, name: i32) -> i32 {
    let mut value = 0i32;
    let mut length = 4;
    // SAFETY: value and its length are valid for the call.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    assert_eq!(status, 0);
    value
}

fn set_option(fd: &impl AsRawFd, level: i32, name: i32, value: i32) {
    // SAFETY: value is valid for the call.
    let status =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
    assert_eq!(status, 0);
}

fn report(sockets: &Sockets) -> String {
    let accepted: Vec<String> = sockets
        .accepted
        .iter()
        .map(|(ours, _)| option(ours, libc::IPPROTO_IP, libc::IP_TOS).to_string())
        .collect();
    format!(
        r#"{{"udp":{},"udp_priority":{},"listener":{},"udp6_class":{},"udp6":{},"accepted":[{}],"late":{}}}"#,
        option(&sockets.udp, libc::IPPROTO_IP, libc::IP_TOS),
        option(&sockets.udp, libc::SOL_SOCKET, libc::SO_PRIORITY),
        option(&sockets.listener, libc::IPPROTO_IP, libc::IP_TOS),
        option(&sockets.udp6, libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        option(&sockets.udp6, libc::IPPROTO_IP, libc::IP_TOS),
        accepted.join(","),
        sockets.late.as_ref().map_or("null".into(), |late| {
            option(late, libc::IPPROTO_IP, libc::IP_TOS).to_string()
        })
    )
}

fn accept(sockets: &mut Sockets) {
    let peer = TcpStream::connect(sockets.listener.local_addr().unwrap()).unwrap();
    let (ours, _) = sockets.listener.accept().unwrap();
    sockets.accepted.push((ours, peer));
}

/// Local ports: of its own sockets, and of the far ends of what it accepted.
fn ports(sockets: &Sockets) -> String {
    let peers: Vec<String> = sockets
        .accepted
        .iter()
        .map(|(_, peer)| peer.local_addr().unwrap().port().to_string())
        .collect();
    format!(
        r#"{{"udp":{},"listener":{},"udp6":{},"peers":[{}]}}"#,
        sockets.udp.local_addr().unwrap().port(),
        sockets.listener.local_addr().unwrap().port(),
        sockets.udp6.local_addr().unwrap().port(),
        peers.join(",")
    )
}

/// Sockets of IPv6 that lack an option, then one that has it. A kernel without
/// MPTCP makes only the first.
fn open_odd(sockets: &mut Sockets) {
    for (kind, protocol) in [
        (libc::SOCK_RAW, libc::IPPROTO_ICMPV6),
        (libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
    ] {
        // SAFETY: takes plain integers; the result is a new descriptor of ours.
        let fd = unsafe { libc::socket(libc::AF_INET6, kind, protocol) };
        assert!(fd >= 0 || kind != libc::SOCK_RAW);
        if fd >= 0 {
            // SAFETY: it was made just now and has no other owner.
            sockets.odd.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    sockets.late = Some(UdpSocket::bind("127.0.0.1:0").unwrap());
}

/// A child whose child outlives it: prints the grandchild's pid.
fn spawn_orphan(command: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", &format!("{{ {command}; }} >/dev/null 2>&1 & echo $!")])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn main() {
    let mut children: Vec<Child> = Vec::new();
    let mut sockets = Sockets {
        udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
        listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        udp6: UdpSocket::bind("[::]:0").unwrap(),
        accepted: Vec::new(),
        odd: Vec::new(),
        late: None,
    };
    set_option(&sockets.udp, libc::IPPROTO_IP, libc::IP_TOS, OWN_TOS);
    for line in std::io::stdin().lock().lines() {
        let answer = match line.unwrap().as_str() {
            "report" => report(&sockets),
            "thread" => {
                std::thread::spawn(|| std::thread::sleep(Duration::from_secs(300)));
                "ok".into()
            }
            "accept" => {
                accept(&mut sockets);
                "ok".into()
            }
            "ports" => ports(&sockets),
            // The end that is closed first waits for a minute.
            "close-peers-first" => {
                for (ours, peer) in sockets.accepted.drain(..) {
                    drop(peer);
                    drop(ours);
                }
                "ok".into()
            }
            "close-peers-last" => {
                for (ours, peer) in sockets.accepted.drain(..) {
                    drop(ours);
                    drop(peer);
                }
                "ok".into()
            }
            "own-tos" => {
                set_option(&sockets.udp, libc::IPPROTO_IP, libc::IP_TOS, 0x08);
                "ok".into()
            }
            "own-priority" => {
                set_option(&sockets.udp, libc::SOL_SOCKET, libc::SO_PRIORITY, 5);
                "ok".into()
            }
            "odd" => {
                open_odd(&mut sockets);
                "ok".into()
            }
            "spawn" => {
                let child = Command::new("sleep").arg("300").spawn().unwrap();
                let pid = child.id();
                children.push(child);
                pid.to_string()
            }
            "orphan" => spawn_orphan("exec sleep 300"),
            "orphan-of-its-own" => spawn_orphan("exec sleep 303"),
            "orphan-in-a-session" => spawn_orphan("exec setsid sleep 304"),
            // Many that end at once, each by another way, and one that stays.
            "storm" => spawn_orphan(
                "for i in 1 2 3 4 5 6 7 8 9; do (true; true); /bin/true; done; exec sleep 306",
            ),
            "end-main" => {
                println!("ok");
                std::io::stdout().flush().unwrap();
                // SAFETY: ends this thread and no other; it does not come back.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
                unreachable!()
            }
            "exec" => panic!("{}", Command::new("sleep").arg("301").exec()),
            other => panic!("unknown command {other}"),
        };
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}
