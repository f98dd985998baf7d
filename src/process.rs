//! Two calls of the C library for the daemon's own process. The embedded library never makes them: there the process is the
//! host's.
#![allow(unsafe_code)] // two calls, each with its reason

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

/// Ends the process without running exit handlers: destructors of an engine's library must not run while another thread is
/// still in that library's constructors.
pub fn exit_immediately(code: u8) -> ! {
    // SAFETY: takes a number by value and does not return.
    unsafe { libc::_exit(code.into()) }
}
