//! Parses the command line and the environment with clap, and does what clap cannot: a variable may hold several values, and a mistake
//! is one line that names its remedy.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches as _};

use super::{Cli, overview, variables};
use crate::config::nearest::nearest;
use crate::config::{ConfigError, hide_secrets, hide_secrets_of_url};

impl Cli {
    /// Reads the command line and the environment, or returns the first mistake in them. Ends the process for `--help`.
    pub fn read() -> Result<Self, ConfigError> {
        let (mut command, arguments) = (variables::without_empty(), std::env::args_os().collect::<Vec<_>>());
        if overview::is_asked_for(&arguments, &command) {
            overview::print(command.clone());
        }
        // The flags of a start may also follow check-config, which checks them.
        if arguments.iter().any(|argument| argument == "check-config") {
            command = command.mut_args(|argument| argument.global(true));
        }
        let matches = command.clone().try_get_matches_from(&arguments).map_err(|error| match error.use_stderr() {
            true => ConfigError::Other(in_words(&error, &arguments, &command)),
            false => error.exit(),
        })?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|error| ConfigError::Other(error.to_string()))?;
        // Helm charts pass an empty value for a flag that is not set.
        for path in [&mut cli.bench_report, &mut cli.web_config_file, &mut cli.record_dir] {
            *path = path.take().filter(|path| !path.as_os_str().is_empty());
        }
        cli.split_variables(&matches);
        for (id, flag) in [("model", "--model"), ("model_version", "--model-version")] {
            if matches.value_source(id) == Some(ValueSource::CommandLine) && cli.source.is_empty() {
                return Err(ConfigError::Other(format!(
                    "{flag} names the engine of a --source, but there is none; add --source or remove the flag"
                )));
            }
        }
        if let Some(super::Command::CheckConfig { file }) = &cli.command {
            // The file is checked as if the exporter started with it.
            cli.config_file = Some(file.clone());
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
            ("source", &mut self.source, char::is_whitespace as fn(char) -> bool),
            ("model", &mut self.model, between_names),
            ("model_version", &mut self.model_version, between_names),
        ] {
            if is_variable(matches, id) {
                split(values, separator);
            }
        }
        if let (Some(super::Command::Doctor(arguments)), Some((_, matches))) = (&mut self.command, matches.subcommand())
            && is_variable(matches, "source")
        {
            split(&mut arguments.source, char::is_whitespace);
        }
    }
}

/// Splits the value of a variable.
fn split(values: &mut Vec<String>, separator: fn(char) -> bool) {
    let all = std::mem::take(values);
    let all = all.iter().flat_map(|value| value.split(separator)).filter(|value| !value.trim().is_empty());
    *values = all.map(str::to_owned).collect();
}

/// clap's error as one line that says what is wrong and what to do.
fn in_words(error: &clap::Error, arguments: &[OsString], command: &Command) -> String {
    let list = |kind| error.get(kind).map(ToString::to_string);
    let given = list(ContextKind::InvalidArg).or_else(|| list(ContextKind::InvalidSubcommand)).unwrap_or_default();
    let name = &flag_name(&given, arguments);
    let value = list(ContextKind::InvalidValue).unwrap_or_default();
    let value = hide_secrets_of_url(&value);
    let known = command.get_arguments().find(|argument| long(argument) == *name);
    // A variable that is set gave the value of a flag that is not on the command line.
    let variable = known.and_then(Arg::get_env).filter(|variable| std::env::var_os(variable).is_some());
    let flag = match variable.filter(|_| !arguments.iter().any(|argument| is_flag(argument, name))) {
        Some(variable) => format!("{} ({name})", variable.display()),
        None => name.clone(),
    };
    let shown = hide_secrets_of_url(name);
    match error.kind() {
        ErrorKind::ValueValidation => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            format!("{flag} {value:?}: {}", hide_secrets(&why))
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{flag}: the value is missing; write {name} VALUE"),
        ErrorKind::InvalidValue => {
            let values = list(ContextKind::ValidValue).unwrap_or_default();
            format!("{flag} {value:?}: unknown value; use one of {values}")
        }
        ErrorKind::UnknownArgument if known.is_some() => {
            format!("{shown}: this flag is the exporter's; write it before the command")
        }
        ErrorKind::UnknownArgument if name.starts_with('-') => {
            // Other programs have these flags for their listen address. clap would suggest --web.port-file for --port.
            let is_address = ["--port", "-p", "--listen", "--address"].contains(&&**name);
            let address = is_address.then(|| "--web.listen-address".to_owned());
            // clap has no suggestion for a flag with a single dash or with capital letters.
            let near = || {
                let flags = command.get_arguments().filter_map(Arg::get_long);
                nearest(name.trim_start_matches('-'), flags).map(|flag| format!("--{flag}"))
            };
            match address.or(list(ContextKind::SuggestedArg)).or_else(near) {
                Some(other) => format!("{shown}: unknown flag; did you mean {other}? (see --help)"),
                None => format!("{shown}: unknown flag; trtllm-exporter help lists all, --help the usual ones"),
            }
        }
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => match list(ContextKind::SuggestedSubcommand) {
            Some(other) => format!("{shown:?}: unknown command; did you mean {other}? (see --help)"),
            None => format!("{shown:?}: not a command; a flag begins with -- (see --help)"),
        },
        ErrorKind::ArgumentConflict => match list(ContextKind::PriorArg) {
            Some(other) if !other.starts_with(name) => {
                let other = other.split(' ').next().unwrap_or_default();
                format!("{flag} cannot be combined with {other}; remove one of them")
            }
            _ => format!("{flag} is given twice; remove one of them"),
        },
        _ => {
            let text = error.to_string();
            let lines = text.trim_start_matches("error: ").lines().map(str::trim);
            let lines: Vec<&str> =
                lines.take_while(|line| !line.starts_with("Usage:")).filter(|line| !line.is_empty()).collect();
            format!("{}; see --help", hide_secrets(&lines.join(" ")))
        }
    }
}

/// The name of the flag or argument that clap calls `given`.
fn flag_name(given: &str, arguments: &[OsString]) -> String {
    // clap appends a placeholder for the value: `--flag <VALUE>`.
    if given.starts_with("--") {
        return given.split(' ').next().unwrap_or_default().to_owned();
    }
    // clap reads `-web.port-file` as the short flags -w, -e, -b and so on.
    let whole = arguments.iter().map(|argument| argument.to_string_lossy()).find(|argument| {
        given.len() == 2 && given.starts_with('-') && argument.starts_with(given) && !argument.starts_with("--")
    });
    whole.map_or(given.to_owned(), |argument| argument.split('=').next().unwrap_or_default().to_owned())
}

fn long(argument: &Arg) -> String {
    argument.get_long().map(|name| format!("--{name}")).unwrap_or_default()
}

/// True if the argument is the flag `name`, with or without a value.
fn is_flag(argument: &OsStr, name: &str) -> bool {
    argument.to_string_lossy().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}
