// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory of this agent for its successor: the rules in force, and the
//! earlier values of tagged threads and sockets. Lives in /run, so it ends with the
//! boot, as process ids do.

use crate::domain::rpc::OLDEST_PROTOCOL;
use crate::domain::shape::Wish;
use crate::domain::tagging::{TaggedProcess, TaggedSocket};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedProcess {
    pub pid: i32,
    pub start_time_ticks: u64,
    pub tagged: TaggedProcess,
    pub lineage: Option<SavedLineage>,
}

/// Rule inherited from a parent: rule id, the parent's pid and start time.
pub type SavedLineage = (String, i32, u64);

/// A process that has inherited a class and carries no tag now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedHeir {
    pub pid: i32,
    pub start_time_ticks: u64,
    pub lineage: SavedLineage,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedState {
    version: u32,
    boot_id: String,
    /// The agent that wrote it had taken every tag off.
    #[serde(default)]
    pub is_clean: bool,
    /// Of the host that spoke last; not in the file of an older agent.
    #[serde(default = "oldest_protocol")]
    pub protocol: u64,
    /// Parameters of the last `set_rules`, or null.
    pub rules: Value,
    pub processes: Vec<SavedProcess>,
    /// Not in the file of an older agent, which passes over it.
    #[serde(default)]
    pub heirs: Vec<SavedHeir>,
    /// Not in the file of an older agent, which passes over it.
    #[serde(default)]
    pub wishes: Vec<Wish>,
    pub sockets: BTreeMap<u64, TaggedSocket>,
}

fn oldest_protocol() -> u64 {
    OLDEST_PROTOCOL
}

impl SavedState {
    pub fn new(boot_id: &str, rules: Value) -> SavedState {
        SavedState {
            version: VERSION,
            boot_id: boot_id.to_owned(),
            is_clean: false,
            protocol: OLDEST_PROTOCOL,
            rules,
            processes: Vec::new(),
            heirs: Vec::new(),
            wishes: Vec::new(),
            sockets: BTreeMap::new(),
        }
    }

    /// Of this boot, or nothing.
    pub fn load(path: &Path, boot_id: &str) -> Result<Option<SavedState>, String> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let state: SavedState = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{}: {error}; starting without it", path.display()))?;
        if state.boot_id != boot_id {
            return Ok(None);
        }
        if state.version != VERSION {
            return Err(format!(
                "{}: version {} is not {VERSION}, which this agent knows; \
                 starting without it: what it names keeps its tags",
                path.display(),
                state.version
            ));
        }
        Ok(Some(state))
    }

    /// Replaces the file in one step.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let fresh = path.with_extension("new");
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        let mut writer = io::BufWriter::new(file);
        serde_json::to_writer(&mut writer, self)?;
        // The last part is written here, and may find the disk full.
        writer.flush()?;
        fs::rename(fresh, path)
    }
}

/// Held as long as the process lives: two agents with one state would take each
/// other's tags off. Without a folder to write to there is nothing to share.
pub fn lock(path: &Path) -> io::Result<Option<Flock<File>>> {
    if let Some(folder) = path.parent() {
        let _ = fs::create_dir_all(folder);
    }
    let lock_path = path.with_extension("lock");
    let opened = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path);
    let Ok(file) = opened else {
        return Ok(None);
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, error @ Errno::EWOULDBLOCK)) => Err(io::Error::other(format!(
            "cannot lock {} ({error}): another sluice-agent has {}; \
             end it, or name another file by --state",
            lock_path.display(),
            path.display()
        ))),
        // A file system without locks is no reason to tag nothing.
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::tag::Tag;

    #[test]
    fn comes_back_within_a_boot_only() {
        let folder = std::env::temp_dir().join(format!("sluice-state-{}", std::process::id()));
        let path = folder.join("state.json");
        let mut state = SavedState::new("boot", serde_json::json!({"revision": 3}));
        state.protocol = 2;
        state.processes.push(SavedProcess {
            pid: 4,
            start_time_ticks: 5,
            tagged: TaggedProcess {
                tag: Tag::new(2).unwrap(),
                base_ioprio: 0,
                threads: BTreeMap::from([(4, 0x4004)]),
            },
            lineage: None,
        });
        state.save(&path).unwrap();
        assert_eq!(SavedState::load(&path, "boot"), Ok(Some(state)));
        assert_eq!(SavedState::load(&path, "other boot"), Ok(None));
        fs::write(
            &path,
            r#"{"version":1,"boot_id":"boot","rules":null,"processes":[],"sockets":{}}"#,
        )
        .unwrap();
        assert_eq!(
            SavedState::load(&path, "boot"),
            Ok(Some(SavedState::new("boot", Value::Null))),
            "of an agent that wrote less down"
        );
        let newer = serde_json::to_string(&SavedState {
            version: VERSION + 1,
            ..SavedState::new("boot", Value::Null)
        });
        fs::write(&path, newer.unwrap()).unwrap();
        assert!(
            SavedState::load(&path, "boot")
                .unwrap_err()
                .contains("version 2 is not 1")
        );
        fs::write(&path, b"{\"version\":").unwrap();
        assert!(
            SavedState::load(&path, "boot")
                .unwrap_err()
                .contains("state.json")
        );
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(SavedState::load(&path, "boot"), Ok(None));
    }

    #[test]
    fn a_full_disk_leaves_the_last_state_in_place() {
        let folder = std::env::temp_dir().join(format!("sluice-full-{}", std::process::id()));
        let path = folder.join("state.json");
        let state = SavedState::new("boot", Value::Null);
        state.save(&path).unwrap();
        std::os::unix::fs::symlink("/dev/full", path.with_extension("new")).unwrap();
        let error = state.save(&path).unwrap_err();
        let loaded = SavedState::load(&path, "boot");
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(loaded, Ok(Some(state)));
    }
}
