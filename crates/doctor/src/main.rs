//! Parses the command line, runs a command, and turns the result into an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use trtllm_config::command_line::print_note;
use trtllm_doctor::cli::Cli;
use trtllm_service::process;

fn main() -> ExitCode {
    process::ignore_file_size_signal();
    let code = Cli::read().and_then(|cli| trtllm_doctor::run(&cli)).unwrap_or_else(|error| {
        print_note(&format!("trtllm-doctor: {error}\n"));
        error.exit_code()
    });
    ExitCode::from(code)
}
