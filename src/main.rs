//! Parses the command line, runs the daemon or a command, and turns the result into an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;
use trtllm_exporter::cli::{Cli, Command};
use trtllm_exporter::start::{self, StartError};
use trtllm_exporter::{process, tools};

fn main() -> ExitCode {
    process::tune_allocator();
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Command::CheckConfig { file }) => tools::check_config::run(file).map_err(StartError::from),
        Some(Command::Catalog { format }) => {
            tools::catalog::run(*format);
            Ok(())
        }
        None => start::run(&cli),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr)] // The one message for the caller; logging may not be set up yet.
            {
                eprintln!("trtllm-exporter: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}
