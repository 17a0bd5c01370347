// SPDX-License-Identifier: GPL-2.0-or-later
//! Pure values and decisions: no clock, no files, no system calls.

pub mod account;
pub mod channel_abi;
pub mod container;
pub mod events;
pub mod ffmpeg;
pub mod follow;
pub mod framing;
pub mod matching;
pub mod pace;
pub mod pattern;
pub mod ports;
pub mod raise;
pub mod report;
pub mod rpc;
pub mod rules;
pub mod servers;
pub mod shape;
pub mod spread;
pub mod subscription;
pub mod table;
pub mod tag;
pub mod tagging;
pub mod vlc;
