// SPDX-License-Identifier: GPL-2.0-or-later
//! How a class is written into requests (docs/specs/tags.md): as an I/O
//! priority on disk requests, as a DSCP on packets.

use serde::{Deserialize, Serialize};

const CLASS_SHIFT: u16 = 13;
const CLASS_REAL_TIME: u16 = 1;
const LEVEL_BITS: u16 = 3;
const ECN_MASK: u8 = 3;

/// A managed tag, 1 to 15. Tag 0, the default class, is the absence of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Tag(u8);

impl Tag {
    pub const MAX: u8 = 15;

    pub fn new(number: u64) -> Option<Tag> {
        let number = u8::try_from(number).ok()?;
        (1..=Tag::MAX).contains(&number).then_some(Tag(number))
    }

    pub fn number(self) -> u8 {
        self.0
    }

    /// The I/O priority: real-time class, level in bits 0–2, hint above it.
    pub fn ioprio(self) -> u16 {
        let tag = u16::from(self.0);
        CLASS_REAL_TIME << CLASS_SHIFT | (tag >> LEVEL_BITS) << LEVEL_BITS | (tag & 7)
    }

    pub fn of_ioprio(ioprio: u16) -> Option<Tag> {
        let data = ioprio & ((1 << CLASS_SHIFT) - 1);
        if ioprio >> CLASS_SHIFT != CLASS_REAL_TIME {
            return None;
        }
        Tag::new(u64::from(data))
    }

    /// The TOS byte (IPv4) or traffic class (IPv6) with these ECN bits.
    pub fn tos(self, ecn_of: u8) -> u8 {
        (self.0 << 2 | 3) << 2 | (ecn_of & ECN_MASK)
    }

    pub fn of_tos(tos: u8) -> Option<Tag> {
        let dscp = tos >> 2;
        if dscp & 3 != 3 {
            return None;
        }
        Tag::new(u64::from(dscp >> 2))
    }
}

impl TryFrom<u8> for Tag {
    type Error = String;
    fn try_from(number: u8) -> Result<Tag, String> {
        Tag::new(u64::from(number)).ok_or_else(|| format!("tag {number} is not 1 to 15"))
    }
}

impl From<Tag> for u8 {
    fn from(tag: Tag) -> u8 {
        tag.0
    }
}

/// The kernel's report of a thread, as it can be set again: older kernels
/// report a level with "no class" but refuse to take one.
pub fn settable_ioprio(reported: u16) -> u16 {
    if reported >> CLASS_SHIFT == 0 {
        0
    } else {
        reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(number: u64) -> Tag {
        Tag::new(number).unwrap()
    }

    #[test]
    fn only_one_to_fifteen_are_tags() {
        assert_eq!(Tag::new(0), None);
        assert_eq!(Tag::new(16), None);
        assert_eq!(Tag::new(u64::MAX), None);
        assert_eq!(Tag::new(256 + 3), None);
        assert!((1..=15).all(|number| Tag::new(number).is_some()));
    }

    #[test]
    fn ioprio_has_class_level_and_hint() {
        assert_eq!(tag(5).ioprio(), 0x2005);
        assert_eq!(tag(7).ioprio(), 0x2007);
        assert_eq!(tag(8).ioprio(), 0x2008);
        assert_eq!(tag(15).ioprio(), 0x200f);
    }

    #[test]
    fn dscp_is_of_the_local_pool() {
        assert_eq!(tag(1).tos(0) >> 2, 0b000111);
        assert_eq!(tag(15).tos(0) >> 2, 0b111111);
        assert_eq!(tag(1).tos(0b1111_1110) & 3, 2, "ECN bits are kept");
    }

    #[test]
    fn both_forms_read_back() {
        for number in 1..=15 {
            assert_eq!(Tag::of_ioprio(tag(number).ioprio()), Some(tag(number)));
            assert_eq!(Tag::of_tos(tag(number).tos(1)), Some(tag(number)));
        }
    }

    #[test]
    fn foreign_values_are_no_tags() {
        for ioprio in [0, 4, 0x2000, 0x2010, 0x4004, 0x6000] {
            assert_eq!(Tag::of_ioprio(ioprio), None, "{ioprio:#x}");
        }
        for tos in [0, 0xb8, 0x10, 0x0c] {
            assert_eq!(Tag::of_tos(tos), None, "{tos:#x}");
        }
    }

    #[test]
    fn no_class_is_set_without_a_level() {
        assert_eq!(settable_ioprio(4), 0);
        assert_eq!(settable_ioprio(0x4004), 0x4004);
    }
}
