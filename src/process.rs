//! Settings of the daemon's own process. The embedded library never changes them: there the process is the host's.
#![allow(unsafe_code)] // two calls of the C library

use std::io;
use std::thread;

use parking_lot::RwLock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Tunes glibc's allocator, before any thread starts. Two arenas: the two threads that serve scrapes need them, and arenas
/// of other threads cost a tenth of the daemon's memory. Allocations as long as a page or an engine's answer are returned to
/// the system once freed; by default glibc keeps room for the longest one ever in each arena.
pub fn tune_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (option, value) in [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, 128 << 10)] {
        // SAFETY: passes two numbers by value; may be called at any time; an unknown option changes nothing.
        let _ = unsafe { libc::mallopt(option, value) };
    }
}

/// Makes a write beyond the limit of a file's size (`ulimit -f`, `LimitFSIZE=`) fail like one to a full disk. By default
/// SIGXFSZ ends the process.
pub fn ignore_file_size_signal() {
    // SAFETY: installs no function; may be called at any time.
    let _ = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Raises the limit of open file descriptors as far as the process may, and returns it. The usual limit of 1024 exists only for
/// programs that use `select`.
pub fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current };
    // None means unlimited.
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Starts this many threads at the same time and ends them.
///
/// # Errors
/// If a limit of the system does not allow it. The runtime cannot report that: it panics or hangs.
pub fn try_threads(count: usize) -> io::Result<()> {
    let gate = RwLock::new(());
    thread::scope(|scope| {
        let closed = gate.write();
        let started = (0..count)
            .try_for_each(|_| thread::Builder::new().spawn_scoped(scope, || drop(gate.read())).map(|_running| ()));
        drop(closed);
        started
    })
}
