//! Settings of the daemon's own process.
#![allow(unsafe_code)] // three calls of the C library

use std::time::{Duration, Instant};

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
#[derive(Debug, Default)]
pub struct Trimming {
    last: Option<Instant>,
    /// Bytes of anonymous memory that were resident after the last call.
    left: u64,
}

impl Trimming {
    /// Memory is given back at least this often.
    const INTERVAL: Duration = Duration::from_secs(10);
    /// It is given back earlier if the resident memory has grown by this many bytes.
    const GROWTH: u64 = 1 << 20;

    /// Gives memory back if it is due. Returns whether the process grows, so that this should be called again soon.
    pub fn tick(&mut self) -> bool {
        let has_grown = resident_anonymous() > self.left + Self::GROWTH;
        if has_grown || self.last.is_none_or(|last| last.elapsed() >= Self::INTERVAL) {
            #[cfg(all(target_os = "linux", target_env = "gnu"))]
            // SAFETY: passes a number by value; may be called at any time; touches no memory that is allocated.
            let _ = unsafe { libc::malloc_trim(0) };
            *self = Self { last: Some(Instant::now()), left: resident_anonymous() };
        }
        has_grown
    }
}

/// Resident bytes of anonymous memory. 0 without /proc.
fn resident_anonymous() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = pages.split(' ').skip(1).map(|pages| pages.parse().unwrap_or(0_u64));
    let (resident, of_files) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(of_files) * rustix::param::page_size() as u64
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
