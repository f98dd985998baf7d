//! Settings of the daemon's own process.
#![allow(unsafe_code)] // three calls of the C library

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Tunes glibc's allocator, before any thread starts. Allows only two arenas, for the two threads that serve scrapes, because arenas
/// of other threads cost a tenth of the daemon's memory. Allocations of 64 KiB or more (a page, an engine's answer, a long
/// line) go back to the system once they are freed; by default, each arena keeps room for the longest one ever.
pub fn tune_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (option, value) in [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, 64 << 10)] {
        // SAFETY: passes two numbers by value; may be called at any time; an unknown option changes nothing.
        let _ = unsafe { libc::mallopt(option, value) };
    }
}

/// Gives freed memory back to the system. By itself, glibc gives back only the end of an arena, and one small allocation there keeps
/// all freed memory before it resident.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: passes a number by value; may be called at any time; touches no memory that is allocated.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Makes a write beyond the limit of a file's size (`ulimit -f`, `LimitFSIZE=`) fail like a write to a full disk. By default
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
