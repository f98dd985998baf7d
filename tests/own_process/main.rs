//! Tests that measure their own process: allocations, threads, file descriptors and memory. Other tests would change
//! these numbers, so these tests have their own binary.
// Tests may panic and print: a failed test panics.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod allocations;
#[allow(dead_code)] // the tests of GPU monitoring use the rest of it
#[path = "../it/support/built.rs"]
mod built;
mod gpu_soak;
mod kept;
mod peers;
#[path = "../it/support/standin.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod standin;

/// Tests that measure the memory of the whole process, or use much of it, run one at a time.
static MEMORY: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    MEMORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
