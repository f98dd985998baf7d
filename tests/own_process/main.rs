//! Tests that measure the process in which they run: allocations, threads, file descriptors and memory. Other tests would
//! change these numbers, so they have a binary of their own.
// A test fails by a panic.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod allocations;
mod gpu_soak;
mod peers;
#[allow(dead_code)] // the tests of GPU monitoring need more of it
#[path = "../it/support/standin.rs"]
mod standin;
