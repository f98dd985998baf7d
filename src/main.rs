//! Parses the command line, runs the daemon or a command, and turns the result into an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use trtllm_config::command_line;
use trtllm_exporter::cli::{self, CatalogFormat, Cli, Command};
use trtllm_exporter::start::{self, StartError};
use trtllm_exporter::tools;
use trtllm_service::{log, printable, process};

fn main() -> ExitCode {
    process::tune_allocator();
    process::ignore_file_size_signal();
    let code = match Cli::read().map_err(StartError::Config).and_then(|cli| run(&cli)) {
        Ok(()) => 0,
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

/// Runs the daemon or a command.
fn run(cli: &Cli) -> Result<(), StartError> {
    match &cli.command {
        Some(Command::CheckConfig { file }) => tools::dry_run::check_config(file, &start::prepare(cli)?.engines),
        Some(Command::Catalog { scenarios: true, answers, format }) => {
            tools::catalog::print_scenarios(*format, *answers);
        }
        Some(Command::Catalog { format, .. }) => tools::catalog::run(*format),
        Some(Command::Man) => command_line::manual_page(cli::command(), include_str!("man.roff")),
        Some(Command::Completions { shell }) => command_line::completions(*shell, cli::command()),
        Some(Command::Init(arguments)) => tools::init::run(arguments)?,
        None if cli.sources.source.iter().any(|source| source == tools::catalog::LIST_SCENARIOS) => {
            tools::catalog::print_scenarios(CatalogFormat::Markdown, false);
        }
        None if cli.dry_run => tools::dry_run::run(cli, &start::prepare(cli)?.engines),
        None => start::run(cli)?,
    }
    Ok(())
}
