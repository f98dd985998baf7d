//! Settings of the daemon's own process. The embedded library never changes them, because its process belongs to the host.
#![allow(unsafe_code)] // four calls of the C library

use std::ffi::c_void;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
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

/// Parts of the program and its libraries that are equal to their files: code and constants.
#[derive(Debug)]
pub struct FilePages(Vec<(u64, u64)>);

impl FilePages {
    /// The parts that are mapped now. Before another thread starts, only linked files are mapped, and these stay mapped forever.
    #[must_use]
    pub fn of_linked_files() -> Self {
        // Memory that the loader has changed, e.g. for relocation, is anonymous: its content is not in the file.
        let is_equal = |map: &MemoryMap| {
            let bytes = |field: &str| map.extension.map.get(field).copied();
            matches!(map.pathname, MMapPath::Path(_))
                && !map.perms.contains(MMPermissions::WRITE)
                && bytes("Anonymous") == Some(0)
                && bytes("Swap").unwrap_or(0) == 0
        };
        let maps = Process::myself().and_then(|process| process.smaps());
        // Without /proc, nothing is given back.
        let maps = maps.map(|maps| maps.0).unwrap_or_default();
        Self(maps.iter().filter(|map| is_equal(map)).map(|map| map.address).collect())
    }

    /// Takes these pages out of the resident memory of the process. A page that is used again comes back from the page
    /// cache, 64 KiB at a time. A third of the program is needed only while the daemon starts: options, YAML,
    /// relocations.
    pub fn give_back(self) {
        for (start, end) in self.0 {
            let length = usize::try_from(end - start).unwrap_or(0);
            // SAFETY: nothing unmaps or writes these pages, and their content is in their file. A failure changes nothing.
            let _ = unsafe { libc::madvise(start as *mut c_void, length, libc::MADV_DONTNEED) };
        }
    }
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

/// Checks that this many threads can run at the same time. Starts them and ends them again. Fails if a limit of the system does not allow
/// them. The runtime itself would not report that: it would panic or hang.
pub fn try_threads(count: usize) -> io::Result<()> {
    let alive = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let before = alive();
    let gate = RwLock::new(());
    let started = thread::scope(|scope| {
        let closed = gate.write();
        let started = (0..count)
            .try_for_each(|_| thread::Builder::new().spawn_scoped(scope, || drop(gate.read())).map(|_running| ()));
        drop(closed);
        started
    });
    // The system counts a thread for a moment after its end. Near the limit, the runtime could not start its threads,
    // so wait.
    for _ in 0..100 {
        if alive() <= before {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    started
}
