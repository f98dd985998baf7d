//! Parses the command line and the environment with clap. A variable may hold several values.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches as _};

use trtllm_config::ConfigError;
use trtllm_config::command_line::{self, split};

use super::{Cli, variables};

impl Cli {
    /// Reads the command line and the environment, or returns the first mistake in them. Ends the process for `--help`.
    pub fn read() -> Result<Self, ConfigError> {
        let (mut command, arguments) = (variables::without_empty(), std::env::args_os().collect::<Vec<OsString>>());
        if let Some(new) = arguments.get(1).and_then(|word| of_doctor(word.to_str()?)) {
            let why = format!("{:?} is a command of another program; run trtllm-doctor {new}", arguments[1]);
            return Err(ConfigError::Other(why));
        }
        if asks_for_help(&arguments, &command) {
            // What most people need, on one screen. `help` explains every flag.
            let short = command.clone().override_help(include_str!("help.txt"));
            short.try_get_matches_from(["trtllm-exporter", "-h"]).unwrap_or_else(|error| error.exit());
        }
        // The flags of a start may also follow check-config, which checks them.
        if arguments.iter().any(|argument| argument == "check-config") {
            command = command.mut_args(|argument| argument.global(true));
        }
        let matches = command_line::parse(&command, &arguments)?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|error| ConfigError::Other(error.to_string()))?;
        // Helm charts pass an empty value for a flag that is not set.
        for path in [&mut cli.sources.bench_report, &mut cli.web.web_config_file, &mut cli.record.dir] {
            *path = path.take().filter(|path| !path.as_os_str().is_empty());
        }
        cli.split_variables(&matches);
        for (id, flag) in [("model", "--model"), ("model_version", "--model-version")] {
            if matches.value_source(id) == Some(ValueSource::CommandLine) && cli.sources.source.is_empty() {
                return Err(ConfigError::Other(format!(
                    "{flag} names the engine of a --source, but there is none; add --source or remove the flag"
                )));
            }
        }
        if let Some(super::Command::CheckConfig { file }) = &cli.command {
            // The file is checked as if the exporter started with it.
            cli.sources.config_file = Some(file.clone());
        }
        if matches!(cli.command, None | Some(super::Command::CheckConfig { .. })) {
            variables::check().map_err(ConfigError::Other)?;
        }
        Ok(cli)
    }

    /// Splits the variables that can hold several values. Spaces separate URLs. Names may contain spaces, so commas separate them.
    fn split_variables(&mut self, matches: &ArgMatches) {
        let is_variable = |matches: &ArgMatches, id| matches.value_source(id) == Some(ValueSource::EnvVariable);
        let between_names: fn(char) -> bool = |letter| matches!(letter, '\n' | ',');
        for (id, values, separator) in [
            ("source", &mut self.sources.source, char::is_whitespace as fn(char) -> bool),
            ("model", &mut self.sources.model, between_names),
            ("model_version", &mut self.sources.model_version, between_names),
        ] {
            if is_variable(matches, id) {
                split(values, separator);
            }
        }
    }
}

/// True if the arguments ask for the help of the exporter itself, not of a command.
fn asks_for_help(arguments: &[OsString], command: &Command) -> bool {
    let is_command = |text: &str| command.get_subcommands().any(|command| command.get_name() == text) || text == "help";
    let mut texts = arguments.iter().skip(1).map(|argument| argument.to_string_lossy()).peekable();
    // A word at the beginning may be a misspelt command.
    texts.peek().is_some_and(|first| first.starts_with('-'))
        && texts.take_while(|text| !is_command(text)).any(|text| text == "-h" || text == "--help")
}

/// The command of trtllm-doctor that `word` means: one of its commands, or a former name of one.
fn of_doctor(word: &str) -> Option<&str> {
    match word {
        "doctor" => Some("diagnose"),
        "record" => Some("export"),
        "diagnose" | "top" | "what-if" | "compare" => Some(word),
        _ => None,
    }
}
