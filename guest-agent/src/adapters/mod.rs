// SPDX-License-Identifier: GPL-2.0-or-later
//! Thin shells around the kernel's interfaces.

pub mod channel;
pub mod clock;
pub mod follow;
pub mod follow_sockets;
pub mod guard;
pub mod http;
pub mod interrupt;
pub mod ioprio;
pub mod kept;
pub mod listeners;
pub mod mapping;
pub mod port;
pub mod procfs;
pub mod programs;
pub mod report;
pub mod schedule;
pub mod sockets;
pub mod state;
pub mod subscriber;
