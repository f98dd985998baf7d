//! One decision about the heap, for the daemon alone and never in a host's process.
#![allow(unsafe_code)] // one call of the C library, which says why it may

/// As many heaps as threads serve scrapes. Left to itself, glibc gives each thread its own, and what a dozen threads that
/// hardly allocate keep of theirs is a tenth of the daemon's memory.
pub fn share() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: two numbers by value; it may be called at any time, and an answer of 0 (unknown option) changes nothing.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
}
