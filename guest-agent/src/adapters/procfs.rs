// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads /proc. Files are read into one reused buffer through one descriptor
//! of /proc; parsing of the wider files is the procfs crate's.

use crate::domain::ports::{Listed, Stage};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::Mode;
use procfs::FromRead;
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{Io, Stat};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

const KERNEL_THREAD: u32 = 0x0020_0000;
const CMDLINE_BYTES: usize = 4096;
const PROC_FILE_BYTES: usize = 64 * 1024;
/// Of one process are looked at: each costs a system call, and a program may
/// have a million.
const MOST_DESCRIPTORS: usize = 65_536;

pub struct Proc {
    root: OwnedFd,
    buffer: Vec<u8>,
}

/// The fields of /proc/PID/stat that the agent needs.
#[derive(Debug, Clone)]
pub struct ProcessStat {
    pub comm: String,
    pub ppid: i32,
    pub session: i32,
    pub start_time_ticks: u64,
    pub is_kernel_thread: bool,
    pub is_zombie: bool,
    pub cpu_ticks: u64,
    pub threads: u64,
    pub rss_pages: u64,
    /// Addresses that execve() draws anew: equal means "the same program run".
    pub image: (u64, u64, u64),
}

impl Proc {
    pub fn open() -> io::Result<Proc> {
        Ok(Proc {
            root: File::open("/proc").map_err(unmounted)?.into(),
            buffer: vec![0; PROC_FILE_BYTES],
        })
    }

    pub fn list(&self) -> io::Result<Vec<i32>> {
        self.numbers(".", usize::MAX)
    }

    /// The process or thread id given out last: unchanged, nothing was started.
    pub fn last_id(&mut self) -> Option<u64> {
        let length = self.read("loadavg").ok()?;
        let text = std::str::from_utf8(&self.buffer[..length]).ok()?;
        text.split_ascii_whitespace().nth(4)?.parse().ok()
    }

    pub fn threads(&self, pid: i32) -> io::Result<Vec<i32>> {
        self.numbers(&format!("{pid}/task"), usize::MAX)
    }

    /// The socket descriptors of a process: (descriptor, socket inode), and how
    /// many descriptors were looked at: the lowest 65,536.
    pub fn sockets(&self, pid: i32) -> io::Result<(usize, Vec<(i32, u64)>)> {
        let descriptors = self.numbers(&format!("{pid}/fd"), MOST_DESCRIPTORS)?;
        let sockets = descriptors
            .iter()
            .filter_map(|&fd| {
                let target = readlinkat(&self.root, format!("{pid}/fd/{fd}").as_str()).ok()?;
                let inode = target
                    .to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .parse()
                    .ok()?;
                Some((fd, inode))
            })
            .collect();
        Ok((descriptors.len(), sockets))
    }

    /// Of the process's network namespace.
    pub fn network(&self, pid: i32) -> io::Result<String> {
        self.link_target(&format!("{pid}/ns/net"))
    }

    /// All TCP sockets in the process's network namespace.
    pub fn tcp_sockets(&self, pid: i32) -> io::Result<Vec<Listed>> {
        let process = procfs::process::Process::new(pid).map_err(io::Error::other)?;
        let mut found = process.tcp().map_err(io::Error::other)?;
        // A kernel without IPv6 has no such file.
        found.extend(process.tcp6().unwrap_or_default());
        Ok(found.iter().map(listed).collect())
    }

    /// Field 22 of /proc/PID/stat, after the name, which may hold anything.
    pub fn start_time(&self, pid: i32) -> io::Result<u64> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(
            &self.root,
            format!("{pid}/stat").as_str(),
            flags,
            Mode::empty(),
        )?);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name
            .split_ascii_whitespace()
            .nth(19)
            .and_then(|field| field.parse().ok())
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub fn stat(&mut self, pid: i32) -> io::Result<ProcessStat> {
        let length = self.read(&format!("{pid}/stat"))?;
        let stat = Stat::from_read(&self.buffer[..length]).map_err(io::Error::other)?;
        Ok(ProcessStat {
            ppid: stat.ppid,
            session: stat.session,
            start_time_ticks: stat.starttime,
            is_kernel_thread: stat.flags & KERNEL_THREAD != 0,
            is_zombie: matches!(stat.state, 'Z' | 'X'),
            cpu_ticks: stat.utime.saturating_add(stat.stime),
            threads: u64::try_from(stat.num_threads).unwrap_or(0),
            rss_pages: stat.rss,
            image: (
                stat.startstack,
                stat.arg_start.unwrap_or(0),
                stat.arg_end.unwrap_or(0),
            ),
            comm: stat.comm,
        })
    }

    /// Bytes of real block I/O so far: (read, written).
    ///
    /// A process's counters have those of its children that were waited for: a shell would
    /// seem to read what its commands read. The counters of its only thread have its own alone.
    pub fn io(&mut self, pid: i32, is_alone: bool) -> io::Result<(u64, u64)> {
        let thread = if is_alone {
            format!("task/{pid}/")
        } else {
            String::new()
        };
        let length = self.read(&format!("{pid}/{thread}io"))?;
        let counters = Io::from_read(&self.buffer[..length]).map_err(io::Error::other)?;
        Ok((counters.read_bytes, counters.write_bytes))
    }

    /// The executable's path; empty if it has none or it cannot be read.
    pub fn exe(&self, pid: i32) -> String {
        self.link_target(&format!("{pid}/exe")).unwrap_or_default()
    }

    /// The file to which links lead from a path, as `exe` would show it. The guest's own
    /// files count: this service may see others in their place (ProtectHome=).
    pub fn file_of(&self, path: &str) -> io::Result<String> {
        let way = OFlag::O_PATH | OFlag::O_CLOEXEC;
        // In a container the first process may be another user's.
        let root = openat(&self.root, "1/root", way, Mode::empty())
            .or_else(|_| openat(&self.root, "/", way, Mode::empty()))?;
        let within = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        match openat2(&root, path, OpenHow::new().flags(way).resolve(within)) {
            Ok(file) => self.link_target(&format!("self/fd/{}", file.as_raw_fd())),
            // Before Linux 5.6.
            Err(Errno::ENOSYS) => {
                let path = std::fs::canonicalize(path)?;
                Ok(path.to_string_lossy().into_owned())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// An upgraded program that still runs is the same program to a rule.
    fn link_target(&self, link: &str) -> io::Result<String> {
        let path = readlinkat(&self.root, link)?;
        let path = path.to_string_lossy();
        Ok(path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned())
    }

    /// The arguments joined by blanks, at most 4096 bytes.
    pub fn cmdline(&mut self, pid: i32) -> String {
        let length = self
            .read(&format!("{pid}/cmdline"))
            .unwrap_or(0)
            .min(CMDLINE_BYTES);
        let arguments = self.buffer[..length].trim_ascii_end();
        let end = arguments
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        let blanked: Vec<u8> = arguments[..end]
            .iter()
            .map(|&byte| if byte == 0 { b' ' } else { byte })
            .collect();
        // Replacement characters may take more room than the bytes in their place.
        let mut text = String::from_utf8_lossy(&blanked).into_owned();
        let mut end = text.len().min(CMDLINE_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }

    pub fn cgroup(&mut self, pid: i32) -> String {
        let length = self.read(&format!("{pid}/cgroup")).unwrap_or(0);
        path_of_cgroup(&String::from_utf8_lossy(&self.buffer[..length])).to_owned()
    }

    pub fn effective_uid(&mut self, pid: i32) -> Option<u32> {
        let length = self.read(&format!("{pid}/status")).ok()?;
        let text = String::from_utf8_lossy(&self.buffer[..length]);
        let ids = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        ids.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    fn numbers(&self, folder: &str, most: usize) -> io::Result<Vec<i32>> {
        let mut dir = Dir::openat(
            &self.root,
            folder,
            OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        Ok(dir
            .iter()
            .filter_map(|entry| number(entry.ok()?.file_name().to_bytes()))
            .take(most)
            .collect())
    }

    fn read(&mut self, path: &str) -> io::Result<usize> {
        let mut file = File::from(openat(
            &self.root,
            path,
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?);
        // These files come whole in one read if the buffer has room, and the rest of
        // a longer command line is not needed.
        file.read(&mut self.buffer)
    }
}

/// The path in systemd's own tree, or in that of version 2. Where there are both, an engine of
/// containers may know of the former alone.
fn path_of_cgroup(text: &str) -> &str {
    let path_in = |tree: &str| {
        text.lines().find_map(|line| {
            let (_number, rest) = line.split_once(':')?;
            rest.strip_prefix(tree)?.strip_prefix(':')
        })
    };
    let systemd = path_in("name=systemd").filter(|path| *path != "/");
    systemd.or_else(|| path_in("")).unwrap_or("/")
}

/// User names by uid, from /etc/passwd, read again when it changes. A static
/// program cannot load the C library's name services; users known only to a
/// directory service appear by number.
#[derive(Default)]
pub struct Users {
    names: HashMap<u32, String>,
    version: Option<(u64, i64, i64)>,
}

impl Users {
    pub fn refresh(&mut self) {
        const PASSWD: &str = "/etc/passwd";
        let version = std::fs::metadata(PASSWD)
            .ok()
            .map(|meta| (meta.ino(), meta.mtime(), meta.mtime_nsec()));
        if version == self.version {
            return;
        }
        self.version = version;
        self.names = std::fs::read(PASSWD)
            .map(|bytes| parse_passwd(&String::from_utf8_lossy(&bytes)))
            .unwrap_or_default();
    }

    pub fn name(&self, uid: u32) -> String {
        self.names
            .get(&uid)
            .cloned()
            .unwrap_or_else(|| uid.to_string())
    }
}

fn parse_passwd(text: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(_), Some(Ok(uid))) =
            (fields.next(), fields.next(), fields.next().map(str::parse))
        {
            names.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    names
}

fn listed(socket: &TcpNetEntry) -> Listed {
    let stage = match socket.state {
        TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck => Stage::Sending,
        TcpState::FinWait2 | TcpState::TimeWait => Stage::Silent,
        _ => Stage::Alive,
    };
    Listed {
        port: socket.local_address.port(),
        stage,
        inode: socket.inode,
    }
}

fn unmounted(error: io::Error) -> io::Error {
    let text = format!("cannot open /proc: {error}; mount it: mount -t proc proc /proc");
    io::Error::new(error.kind(), text)
}

fn number(name: &[u8]) -> Option<i32> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

pub fn sys_text(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn reads_our_own_process() {
        let mut proc = Proc::open().unwrap();
        let pid = std::process::id() as i32;
        assert!(proc.list().unwrap().contains(&pid));
        let stat = proc.stat(pid).unwrap();
        assert!(!stat.is_kernel_thread && !stat.is_zombie && stat.threads >= 1);
        assert_eq!(
            proc.exe(pid),
            std::env::current_exe().unwrap().to_str().unwrap()
        );
        assert!(
            proc.cmdline(pid)
                .starts_with(&std::env::args().next().unwrap())
        );
        assert!(proc.cgroup(pid).starts_with('/'));
        assert!(proc.effective_uid(pid).is_some());
        assert!(proc.io(pid, false).is_ok());
        assert!(proc.threads(pid).unwrap().contains(&pid));
    }

    #[test]
    fn the_cgroup_is_systemds_or_that_of_version_2() {
        for (text, path) in [
            (
                "0::/system.slice/docker-1.scope\n",
                "/system.slice/docker-1.scope",
            ),
            // version 1, and both, where Docker knows version 1 alone
            ("4:pids:/docker/1\n1:name=systemd:/docker/1\n", "/docker/1"),
            (
                "4:pids:/docker/1\n1:name=systemd:/docker/1\n0::/system.slice/docker.service\n",
                "/docker/1",
            ),
            ("1:name=systemd:/\n0::/user.slice\n", "/user.slice"),
            // A user may have a cgroup of his own name.
            (
                "0::/a:name=systemd:/docker/1\n",
                "/a:name=systemd:/docker/1",
            ),
            ("4:pids:/docker/1\n", "/"),
            ("", "/"),
        ] {
            assert_eq!(path_of_cgroup(text), path, "{text}");
        }
    }

    #[test]
    fn a_shell_has_not_written_what_its_command_wrote() {
        let file = std::env::current_dir()
            .unwrap()
            .join(format!("written-{}", std::process::id()));
        let script = format!(
            "head -c 4194304 /dev/zero > {}; echo; read line",
            file.display()
        );
        let mut shell = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(shell.stdout.take().unwrap())
            .read_line(&mut String::new())
            .unwrap();
        let mut proc = Proc::open().unwrap();
        let pid = shell.id() as i32;
        let [whole, own] = [false, true].map(|is_alone| proc.io(pid, is_alone).unwrap().1);
        drop(shell.stdin.take());
        shell.wait().unwrap();
        std::fs::remove_file(&file).unwrap();
        // A file system in memory counts nothing.
        if whole == 0 {
            eprintln!("not tried: {} counts no bytes written", file.display());
            return;
        }
        assert!(
            whole >= 4 << 20 && own < 1 << 20,
            "{whole} of all, {own} of the shell"
        );
    }

    #[test]
    fn a_path_leads_to_the_file_that_runs() {
        let folder = std::env::temp_dir().join(format!("sluice-links-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("real")).unwrap();
        let place = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        std::fs::write(place("real/program"), "").unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, place(name));
        link("real", "folder").unwrap();
        link("folder/program", "relative").unwrap();
        link(&place("relative"), "absolute").unwrap();
        link("loop", "loop").unwrap();
        link("absent", "dangling").unwrap();
        let proc = Proc::open().unwrap();
        let file = place("real/program");
        for name in ["real/program", "folder/program", "relative", "absolute"] {
            assert_eq!(proc.file_of(&place(name)).unwrap(), file, "{name}");
        }
        for name in ["loop", "dangling", "absent", "relative/below"] {
            assert!(proc.file_of(&place(name)).is_err(), "{name}");
        }
        assert!(proc.file_of("/proc/self/exe").is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_new_process_moves_the_last_id() {
        let mut proc = Proc::open().unwrap();
        let before = proc.last_id();
        assert!(before.is_some());
        std::process::Command::new("true").status().unwrap();
        assert_ne!(proc.last_id(), before);
    }

    #[test]
    fn finds_sockets_among_descriptors() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let (count, sockets) = Proc::open()
            .unwrap()
            .sockets(std::process::id() as i32)
            .unwrap();
        assert!(count > sockets.len());
        assert!(
            sockets
                .iter()
                .any(|&(other, inode)| other == fd && inode > 0)
        );
    }

    #[test]
    fn of_very_many_descriptors_the_lowest_are_listed() {
        let files: Vec<File> = (0..8).map(|_| File::open("/dev/null").unwrap()).collect();
        let own = format!("{}/fd", std::process::id());
        let listed = Proc::open().unwrap().numbers(&own, 8).unwrap();
        let highest = files.iter().map(std::os::fd::AsRawFd::as_raw_fd).max();
        assert_eq!(listed.len(), 8);
        assert!(
            !listed.contains(&highest.unwrap()),
            "{highest:?} in {listed:?}"
        );
    }

    #[test]
    fn a_gone_process_is_an_error() {
        assert!(Proc::open().unwrap().stat(i32::MAX).is_err());
    }

    #[test]
    fn passwd_lines_are_read_and_broken_ones_skipped() {
        let names = parse_passwd(
            "root:x:0:0:r:/root:/bin/sh\n\nbad\nweb:x:33:33\nalias:x:33:1\nx:x:-1:0\n",
        );
        assert_eq!(names.len(), 2);
        assert_eq!((names[&0].as_str(), names[&33].as_str()), ("root", "web"));
    }
}
