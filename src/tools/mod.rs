//! Subcommands that print to stdout and exit. No other code writes to stdout.

use std::io::Write as _;

pub mod catalog;
pub mod check_config;
pub mod completions;
pub mod doctor;
pub mod exporters;
pub mod man;
pub mod record;
pub mod top;

/// Prints to stdout. A reader that stops early, such as `head`, is not an error.
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
