// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent's programs in the kernel, fitted to it together: the description of all of the
//! kernel's types (BTF) takes a tenth of a second to read, and 40 MB meanwhile.

use crate::adapters::follow_sockets::SocketEvents;
use crate::adapters::guard::Guard;
use crate::adapters::kept::Kept;
use aya::Btf;
use aya::programs::ProgramError;
use std::error::Error;
use std::os::fd::BorrowedFd;

/// Each in force as long as it is held, or the reason why it is not.
pub struct Programs {
    pub sockets: Result<SocketEvents, String>,
    pub guard: Result<Guard, String>,
}

impl Programs {
    pub fn open() -> Programs {
        let programs = match Btf::from_sys_fs() {
            Ok(types) => Programs {
                // First, as a priority may be laid down before it is there.
                guard: Guard::open(&types).map_err(|error| with_reasons(&*error)),
                sockets: SocketEvents::open(&types).map_err(|error| with_reasons(&*error)),
            },
            Err(error) => {
                let reason = with_reasons(&error);
                Programs::absent(&reason)
            }
        };
        // SAFETY: gives pages that are free back to the system, and touches nothing else.
        unsafe { libc::malloc_trim(0) };
        programs
    }

    /// A predecessor's, if it has left all of them.
    pub fn of(kept: &mut Kept) -> Option<Programs> {
        let (sockets, guard) = (SocketEvents::of(kept), Guard::of(kept));
        Some(Programs {
            sockets: Ok(sockets?),
            guard: Ok(guard?),
        })
    }

    /// By their names.
    pub fn parts(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let sockets = self.sockets.iter().flat_map(SocketEvents::parts);
        let guard = self.guard.iter().flat_map(Guard::parts);
        sockets.chain(guard).collect()
    }

    pub fn absent(reason: &str) -> Programs {
        Programs {
            sockets: Err(reason.to_owned()),
            guard: Err(reason.to_owned()),
        }
    }

    pub fn has_any(&self) -> bool {
        self.sockets.is_ok() || self.guard.is_ok()
    }
}

/// The error and its causes. The verifier's account of a program is long and for nobody here.
fn with_reasons(error: &(dyn Error + 'static)) -> String {
    if let Some(ProgramError::LoadError { io_error, .. }) = error.downcast_ref() {
        return format!("the kernel does not load the program: {io_error}");
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
