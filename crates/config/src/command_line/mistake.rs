//! Says clap's errors in one line, with the flag or the variable, the value and the remedy.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgMatches, Command};

use crate::error::ConfigError;
use crate::nearest::nearest;
use crate::secrets::{hide_secrets, hide_secrets_of_url};

/// Parses the arguments, the first of which is the program. Returns the first mistake in them. Ends the process if they ask for
/// help or for the version, or if the command is missing.
pub fn parse(command: &Command, arguments: &[OsString]) -> Result<ArgMatches, ConfigError> {
    command.clone().try_get_matches_from(arguments).map_err(|error| {
        if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            error.exit();
        }
        ConfigError::Other(in_words(&error, arguments, command))
    })
}

/// The error as one line that says what is wrong and what to do. Secrets in URLs are hidden.
fn in_words(error: &clap::Error, arguments: &[OsString], command: &Command) -> String {
    let list = |kind| error.get(kind).map(ToString::to_string);
    let given = list(ContextKind::InvalidArg).or_else(|| list(ContextKind::InvalidSubcommand)).unwrap_or_default();
    let name = &flag_name(&given, arguments);
    let value = list(ContextKind::InvalidValue).unwrap_or_default();
    let value = hide_secrets_of_url(&value);
    let typed =
        command.get_subcommands().find(|command| arguments.iter().skip(1).any(|text| text == command.get_name()));
    let flags = || command.get_arguments().chain(typed.into_iter().flat_map(Command::get_arguments));
    let known = flags().find(|argument| long(argument) == *name);
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
        ErrorKind::TooManyValues => format!("{flag} {value:?}: the flag has no value; write only {name}"),
        ErrorKind::UnknownArgument if known.is_some() => {
            let is_general = command.get_arguments().any(|argument| long(argument) == *name);
            let place = if is_general { "before" } else { "after" };
            format!("{shown}: this flag is misplaced; write it {place} the command")
        }
        ErrorKind::UnknownArgument if name.starts_with('-') => {
            // Other programs have these flags for their listen address. clap would suggest --web.port-file for --port.
            let is_address = ["--port", "-p", "--listen", "--address"].contains(&&**name);
            let address = flags().map(long).find(|flag| is_address && flag == "--web.listen-address");
            // clap has no suggestion for a flag with a single dash or with capital letters.
            let near = || {
                nearest(name.trim_start_matches('-'), flags().filter_map(Arg::get_long)).map(|flag| format!("--{flag}"))
            };
            match address.or(list(ContextKind::SuggestedArg)).or_else(near) {
                Some(other) => format!("{shown}: unknown flag; did you mean {other}? (see --help)"),
                None => {
                    let typed = typed.map(|command| format!(" {}", command.get_name())).unwrap_or_default();
                    format!("{shown}: unknown flag; {}{typed} --help lists all", command.get_name())
                }
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
