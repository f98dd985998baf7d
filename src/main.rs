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
    let code = match Cli::read().map_err(|mistakes| StartError::Config(mistakes.into())).and_then(|cli| run(&cli)) {
        Ok(code) => code,
        Err(error) => {
            let code = error.exit_code();
            // A file or a source may have its words in it.
            log::last_words(printable::lines(&format!("trtllm-exporter: {error}")).into_owned());
            code
        }
    };
    // An engine that still loads its model cannot be stopped. Exit handlers would destroy the library that it runs in.
    #[cfg(feature = "executor")]
    if trtllm_sources::executor::is_any_running() {
        trtllm_sources::executor::exit_now(code);
    }
    ExitCode::from(code)
}

/// Runs the daemon or a command. Returns the exit code.
fn run(cli: &Cli) -> Result<u8, StartError> {
    match &cli.command {
        Some(Command::CheckConfig { file }) => {
            tools::check_config::print_engines(file, &start::prepare(cli)?.engines);
            Ok(0)
        }
        Some(Command::Catalog { scenarios: true, format }) => {
            tools::scenarios::run(*format);
            Ok(0)
        }
        Some(Command::Catalog { scenarios: false, format }) => {
            tools::catalog::run(*format);
            Ok(0)
        }
        Some(Command::Doctor(arguments)) => tools::doctor::run(arguments).map_err(StartError::from),
        Some(Command::Top(arguments)) => tools::top::run(arguments).map_err(StartError::from),
        Some(Command::WhatIf(arguments)) => tools::what_if::run(arguments).map_err(StartError::from),
        Some(Command::Compare(arguments)) => tools::compare::run(arguments).map_err(StartError::from),
        Some(Command::Record { command }) => tools::record::run(command).map(|()| 0).map_err(StartError::from),
        Some(Command::Man) => {
            tools::man::run();
            Ok(0)
        }
        Some(Command::Completions { shell }) => {
            tools::completions::run(*shell);
            Ok(0)
        }
        Some(Command::Init(arguments)) => tools::init::run(arguments).map(|()| 0).map_err(StartError::from),
        None if cli.source.iter().any(|source| source == tools::scenarios::SOURCE) => {
            tools::scenarios::run(CatalogFormat::Markdown);
            Ok(0)
        }
        None if cli.dry_run => {
            tools::dry_run::run(cli, &start::prepare(cli)?.engines);
            Ok(0)
        }
        None => start::run(cli).map(|()| 0),
    }
}
