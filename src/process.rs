//! Two decisions about the heap, for the daemon alone and never in a host's process.
#![allow(unsafe_code)] // one call of the C library, which says why it may

/// As many heaps as threads serve scrapes: left to itself, glibc gives each thread its own, and what a dozen threads that
/// hardly allocate keep of theirs is a tenth of the daemon's memory. And what is as long as a page or an engine's answer is
/// given back once it is freed: left to itself, glibc keeps room for the longest there ever was, in each heap.
pub fn set_up() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (option, value) in [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, 128 << 10)] {
        // SAFETY: two numbers by value; it may be called at any time, and an answer of 0 (unknown option) changes nothing.
        let _ = unsafe { libc::mallopt(option, value) };
    }
}
