// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest agent: finds processes by the host's rules, tags their I/O, and
//! reports the process table. Dependencies point one way: `domain` (pure) ←
//! `adapters` (the kernel, files, the port) ← `services` ← `main`.

pub mod adapters;
pub mod domain;
pub mod services;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
pub const PORT_NAME: &str = "org.sluice.agent.0";
