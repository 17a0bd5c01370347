// SPDX-License-Identifier: GPL-2.0-or-later
//! Changes of one thread or one socket, and records of its earlier values, so that
//! it can be put back. The state file keeps the records.

use super::tag::{Tag, settable_ioprio};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A process that carries a tag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaggedProcess {
    pub tag: Tag,
    /// The priority of its leader before; threads born tagged go back to it.
    pub base_ioprio: u16,
    /// Priority of each thread before it was tagged.
    pub threads: BTreeMap<i32, u16>,
}

/// A socket that carries a tag, found by its inode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaggedSocket {
    pub tag: Tag,
    pub original: SocketMarks,
    /// Tagged processes that hold it; the first one's class counts.
    pub holders: Vec<i32>,
}

/// The marks on a socket's packets. `priority` is the guest's own queueing
/// priority, which the kernel changes along with the TOS; it is put back so
/// that a tag means nothing to the guest's queueing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketMarks {
    pub tos: u8,
    /// Of IPv6 sockets.
    pub traffic_class: Option<u8>,
    pub priority: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadPlan {
    /// Set this, if anything.
    pub set: Option<u16>,
    /// Remember this as the thread's own.
    pub original: u16,
}

/// A thread that should carry `tag`. `remembered`: its own priority, if it is
/// known; `born_with`: the tags its creator may have handed down.
pub fn plan_thread(
    current: u16,
    remembered: Option<u16>,
    tag: Tag,
    born_with: &[Tag],
    base: u16,
) -> ThreadPlan {
    let inherited = Tag::of_ioprio(current).is_some_and(|tag| born_with.contains(&tag));
    let original = match remembered {
        Some(original) if current == tag.ioprio() || inherited => original,
        // Somebody else has changed it since, or it is new: theirs counts.
        _ if !inherited => settable_ioprio(current),
        _ => base,
    };
    ThreadPlan {
        set: (current != tag.ioprio()).then(|| tag.ioprio()),
        original,
    }
}

/// The priority of a thread that should carry `tag` no longer. A thread that has
/// another value by now was changed by somebody else and is left alone.
pub fn plan_restore(current: u16, tag: Tag, original: u16) -> Option<u16> {
    (current == tag.ioprio() && current != original).then_some(original)
}

/// The marks a socket should have. ECN bits stay as they are.
pub fn marks_with(current: SocketMarks, tag: Tag) -> SocketMarks {
    SocketMarks {
        tos: tag.tos(current.tos),
        traffic_class: current.traffic_class.map(|class| tag.tos(class)),
        priority: current.priority,
    }
}

/// The marks a socket should have when its tag goes. Its priority was kept
/// while it was tagged: its present priority is the program's own.
pub fn marks_back(current: SocketMarks, original: SocketMarks) -> SocketMarks {
    SocketMarks {
        priority: current.priority,
        ..original
    }
}

/// The record of a socket seen for the first time. An accepted
/// connection copies its listener's marks: a tag on it is not its own.
pub fn original_marks(current: SocketMarks) -> SocketMarks {
    let own = |tos: u8| {
        if Tag::of_tos(tos).is_some() {
            tos & 3
        } else {
            tos
        }
    };
    SocketMarks {
        tos: own(current.tos),
        traffic_class: current.traffic_class.map(own),
        priority: current.priority,
    }
}

/// Whether the application has replaced the tag by marks of its own.
pub fn is_replaced(current: SocketMarks, tag: Tag) -> bool {
    let foreign = |tos: u8| Tag::of_tos(tos) != Some(tag);
    foreign(current.tos) || current.traffic_class.is_some_and(foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEST_EFFORT: u16 = 0x4004;

    fn tag(number: u64) -> Tag {
        Tag::new(number).unwrap()
    }

    #[test]
    fn a_new_thread_is_set_and_its_value_kept() {
        let plan = plan_thread(BEST_EFFORT, None, tag(3), &[tag(3)], 0);
        assert_eq!(
            plan,
            ThreadPlan {
                set: Some(0x2003),
                original: BEST_EFFORT
            }
        );
    }

    #[test]
    fn a_thread_born_tagged_goes_back_to_the_base() {
        let plan = plan_thread(0x2003, None, tag(3), &[tag(3)], BEST_EFFORT);
        assert_eq!(
            plan,
            ThreadPlan {
                set: None,
                original: BEST_EFFORT
            }
        );
    }

    #[test]
    fn a_change_of_class_keeps_the_original() {
        let plan = plan_thread(0x2003, Some(BEST_EFFORT), tag(5), &[tag(5), tag(3)], 0);
        assert_eq!(
            plan,
            ThreadPlan {
                set: Some(0x2005),
                original: BEST_EFFORT
            }
        );
    }

    #[test]
    fn a_change_by_somebody_else_becomes_the_original() {
        let plan = plan_thread(0x6000, Some(BEST_EFFORT), tag(3), &[tag(3)], 0);
        assert_eq!(
            plan,
            ThreadPlan {
                set: Some(0x2003),
                original: 0x6000
            }
        );
    }

    #[test]
    fn a_process_that_had_the_same_value_on_its_own_keeps_it() {
        let plan = plan_thread(0x2003, None, tag(3), &[], 0);
        assert_eq!(
            plan,
            ThreadPlan {
                set: None,
                original: 0x2003
            }
        );
        assert_eq!(plan_restore(0x2003, tag(3), 0x2003), None);
    }

    #[test]
    fn restoring_touches_only_our_own_value() {
        assert_eq!(plan_restore(0x2003, tag(3), BEST_EFFORT), Some(BEST_EFFORT));
        assert_eq!(plan_restore(0x6000, tag(3), BEST_EFFORT), None);
    }

    #[test]
    fn socket_marks_keep_ecn_and_know_inherited_tags() {
        let plain = SocketMarks {
            tos: 0x10 | 1,
            traffic_class: Some(2),
            priority: 6,
        };
        let tagged = marks_with(plain, tag(1));
        assert_eq!(
            (tagged.tos, tagged.traffic_class),
            (0x1c | 1, Some(0x1c | 2))
        );
        assert_eq!(tagged.priority, 6);
        assert!(!is_replaced(tagged, tag(1)));
        assert!(is_replaced(tagged, tag(2)));
        assert!(is_replaced(
            SocketMarks {
                tos: 0x10,
                ..tagged
            },
            tag(1)
        ));
        assert_eq!(original_marks(plain), plain);
        assert_eq!(
            original_marks(tagged),
            SocketMarks {
                tos: 1,
                traffic_class: Some(2),
                priority: 6
            }
        );
    }
}
