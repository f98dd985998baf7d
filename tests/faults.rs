//! Faults from outside, one after another, against the real binary: broken answers, broken lines, hostile HTTP clients, a host
//! without descriptors, threads, memory or disk, and whose clock jumps. After each one the totals are exact, healthy engines are unaffected, the page can be read, and
//! memory and descriptors are back. Each test prints its table.
// A test fails by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, clippy::print_stdout)]

#[path = "faults/answers.rs"]
mod answers;
#[path = "faults/clients.rs"]
mod clients;
#[path = "faults/clock.rs"]
mod clock;
mod e2e;
#[path = "faults/engine.rs"]
mod engine;
#[path = "faults/host.rs"]
mod host;
#[path = "faults/limits.rs"]
mod limits;
#[path = "faults/many.rs"]
mod many;
#[path = "faults/progress.rs"]
mod progress;
#[path = "faults/publishers.rs"]
mod publishers;
#[path = "faults/scene.rs"]
mod scene;
#[path = "faults/values.rs"]
mod values;
