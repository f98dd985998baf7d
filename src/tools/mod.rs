//! Subcommands that print to stdout and exit. No other code writes to stdout.

use std::io::Write as _;

use tokio::runtime::{Builder, Runtime};

use crate::config::ConfigError;
use trtllm_service::printable;

pub mod catalog;
pub mod compare;
pub mod doctor;
pub mod dry_run;
pub mod exporters;
pub mod init;
pub mod man;
pub mod record;
pub mod top;
mod unjudged;
pub mod what_if;

/// A runtime for a command that waits for answers. `command` is the name of the command.
fn runtime(command: &'static str) -> Result<Runtime, ConfigError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| ConfigError::flag(command, "", format!("cannot start: {error}")))
}

/// Prints to stdout. The text may quote engines and servers, so it is made printable. A reader that stops early, such as `head`, is
/// not an error.
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(printable::lines(text).as_bytes());
}

/// Prints a note to stderr, so that it is not part of the output. The text is made printable, too.
fn print_note(text: &str) {
    let _ = std::io::stderr().lock().write_all(printable::lines(text).as_bytes());
}

/// Prints JSON to stdout, with the same rules as [`print`].
fn print_json(text: &str) {
    let _ = std::io::stdout().lock().write_all(printable::json(text).as_bytes());
}
