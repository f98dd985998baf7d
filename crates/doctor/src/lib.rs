//! `trtllm-doctor`: what people run. It reads the JSON API of running exporters, or a recording, and says what limits each engine
//! ([`diagnose`]), shows engines in the terminal ([`top`]), and predicts and compares them ([`what_if`], [`compare`]).
#![forbid(unsafe_code)]

pub mod cli;
pub mod compare;
pub mod diagnose;
mod exporters;
mod recording;
pub mod top;
pub mod what_if;

use cli::{Cli, Command};
use trtllm_config::ConfigError;
use trtllm_config::command_line;

/// Runs a command. Returns the exit code.
pub fn run(cli: &Cli) -> Result<u8, ConfigError> {
    match &cli.command {
        Command::Diagnose(arguments) => return diagnose::run(arguments),
        Command::Top(arguments) => return top::run(arguments),
        Command::WhatIf(arguments) => return what_if::run(arguments),
        Command::Compare(arguments) => return compare::run(arguments),
        Command::Export(arguments) => recording::export(arguments)?,
        Command::Man => command_line::manual_page(cli::command(), include_str!("man.roff")),
        Command::Completions { shell } => command_line::completions(*shell, cli::command()),
    }
    Ok(0)
}
