//! Faults from outside, one after another, against the real binary: broken answers, broken lines, hostile HTTP clients, a host
//! without descriptors, threads, memory or disk, and whose clock jumps. After each one the totals are exact, healthy engines are unaffected, the page can be read, and
//! memory and descriptors are back. Each test prints its table.

mod answers;
mod clients;
mod clock;
mod engine;
mod host;
mod limits;
mod many;
mod progress;
mod publishers;
mod scene;
mod values;
