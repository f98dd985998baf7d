//! What both command lines share: the variables of flags, messages about mistakes, the manual page, completions and printing.
//! Only commands print to stdout; the daemon logs.

mod man;
mod mistake;
mod variables;

use std::io::Write as _;

use tokio::runtime::{Builder, Runtime};

use crate::error::ConfigError;
use trtllm_service::printable;

pub use crate::nearest::nearest;
pub use clap_complete::Shell;
pub use man::{completions, manual_page};
pub use mistake::parse;
pub use variables::{PREFIX, is_not_empty, split, with_variable};

/// A runtime for a command that waits for answers. `command` is the name of the command.
pub fn runtime(command: &'static str) -> Result<Runtime, ConfigError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| ConfigError::flag(command, "", format!("cannot start: {error}")))
}

/// Prints to stdout. The text may quote engines and servers, so it is made printable. A reader that stops early, such as `head`, is
/// not an error.
pub fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(printable::lines(text).as_bytes());
}

/// Prints a note to stderr, so that it is not part of the output. The text is made printable, too.
pub fn print_note(text: &str) {
    let _ = std::io::stderr().lock().write_all(printable::lines(text).as_bytes());
}

/// Prints JSON to stdout, with the same rules as [`print()`].
pub fn print_json(text: &str) {
    let _ = std::io::stdout().lock().write_all(printable::json(text).as_bytes());
}
