//! Parses the command line, runs the daemon or a command, and turns the result into an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use trtllm_exporter::cli::{CatalogFormat, Cli, Command};
use trtllm_exporter::start::{self, StartError};
use trtllm_exporter::tools;
use trtllm_service::{log, printable, process};

fn main() -> ExitCode {
    process::tune_allocator();
    process::ignore_file_size_signal();
    let code = match Cli::read().map_err(StartError::Config).and_then(|cli| run(&cli)) {
        Ok(code) => code,
        Err(error) => {
            let code = error.exit_code();
            // Make the error printable: it may quote a file or a source.
            log::last_words(printable::lines(&format!("trtllm-exporter: {error}")).into_owned());
            code
        }
    };
    // An engine that still loads its model cannot be stopped, and exit handlers would destroy the library that it uses.
    #[cfg(feature = "executor")]
    if trtllm_sources::executor::is_any_running() {
        trtllm_sources::executor::exit_now(code);
    }
    ExitCode::from(code)
}

/// Runs the daemon or a command. Returns the exit code.
fn run(cli: &Cli) -> Result<u8, StartError> {
    match &cli.command {
        Some(Command::CheckConfig { file }) => tools::dry_run::check_config(file, &start::prepare(cli)?.engines),
        Some(Command::Catalog { scenarios: true, format }) => tools::catalog::print_scenarios(*format),
        Some(Command::Catalog { scenarios: false, format }) => tools::catalog::run(*format),
        Some(Command::Doctor(arguments)) => return Ok(tools::doctor::run(arguments)?),
        Some(Command::Top(arguments)) => return Ok(tools::top::run(arguments)?),
        Some(Command::WhatIf(arguments)) => return Ok(tools::what_if::run(arguments)?),
        Some(Command::Compare(arguments)) => return Ok(tools::compare::run(arguments)?),
        Some(Command::Record(command)) => tools::record::run(command)?,
        Some(Command::Man) => tools::man::run(),
        Some(Command::Completions { shell }) => tools::man::completions(*shell),
        Some(Command::Init(arguments)) => tools::init::run(arguments)?,
        None if cli.source.iter().any(|source| source == tools::catalog::LIST_SCENARIOS) => {
            tools::catalog::print_scenarios(CatalogFormat::Markdown);
        }
        None if cli.dry_run => tools::dry_run::run(cli, &start::prepare(cli)?.engines),
        None => start::run(cli)?,
    }
    Ok(0)
}
