//! What any service needs: a log, supervised tasks, shutdown, memory limits, sockets and small files.
//! Knows no engine and no GPU. `unsafe` code is in [`process`] only.
#![deny(unsafe_code)]

pub mod file_text;
pub mod host;
pub mod log;
pub mod permits;
pub mod printable;
pub mod process;
pub mod shutdown;
pub mod small_file;
pub mod supervise;
pub mod unix_socket;
