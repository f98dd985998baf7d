//! The subcommand `completions`: a script with which a shell completes flags and commands.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;

use super::print;

/// Prints the script.
pub fn run(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "trtllm-exporter", &mut script);
    print(&String::from_utf8_lossy(&script));
}
