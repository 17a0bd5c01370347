// SPDX-License-Identifier: GPL-2.0-or-later
//! Compiles the parts of the agent that run in the kernel.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const PARTS: [&str; 2] = ["ioprio", "sockets"];

fn main() {
    for part in PARTS {
        compile(part);
    }
}

fn compile(part: &str) {
    let source = format!("bpf/{part}.bpf.c");
    println!("cargo:rerun-if-changed={source}");
    let object = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join(format!("{part}.bpf.o"));
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap();
    // Headers of the C library that Debian keeps apart for each machine.
    let headers = format!("/usr/include/{machine}-linux-gnu");
    let status = Command::new("clang")
        .args(["-O2", "-g", "-Wall", "-target", "bpf"])
        .arg("-D__TARGET_ARCH_x86")
        .arg(format!(
            "-fdebug-prefix-map={}=.",
            env::current_dir().unwrap().display()
        ))
        .arg("-I")
        .arg(Path::new(&headers))
        .args(["-c", &source, "-o"])
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("clang: {status} for {source}; install libbpf-dev if bpf/ is missing"),
        Err(error) => panic!("clang: {error}; install clang and libbpf-dev"),
    }
}
