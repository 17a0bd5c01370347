// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent's work, between pure decisions and the kernel.

pub mod agent;
pub mod channel;
pub mod channel_view;
pub mod event_view;
pub mod events;
pub mod follow;
pub mod log;
pub mod pace;
pub mod ping;
pub mod progress;
pub mod raise;
pub mod reports;
pub mod scanner;
pub mod servers;
pub mod session;
pub mod shape;
pub mod sources;
pub mod tagger;
