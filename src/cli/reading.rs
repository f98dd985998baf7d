//! Parses the command line and the environment. clap stops at the first mistake. To find every mistake, the code here removes what
//! clap has refused, and parses again.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use super::{Cli, overview, variables};
use crate::config::mistakes::nearest;
use crate::config::{Mistakes, hide_secrets, hide_secrets_of_url};

impl Cli {
    /// Reads the command line and the environment. Ends the process for `--help`. Invalid arguments are left out and listed in
    /// [`Self::mistakes`], so that the others can be checked too. Fails if the rest cannot be parsed, and for any mistake in a
    /// command other than `check-config`.
    pub fn read() -> Result<Self, Mistakes> {
        let (command, arguments) = (Self::command(), std::env::args_os().collect::<Vec<_>>());
        if overview::is_asked_for(&arguments, &command) {
            overview::print(command.clone());
        }
        let mut mistakes = Mistakes::default();
        let is_empty = |variable: &OsStr| std::env::var_os(variable).is_some_and(|value| value.is_empty());
        let command = without_variables(command, &is_empty);
        let Some(matches) = matches(command, arguments, &mut mistakes) else {
            return Err(mistakes);
        };
        let mut cli = match Self::from_arg_matches(&matches) {
            Ok(cli) => cli,
            Err(error) => {
                mistakes.add(error);
                return Err(mistakes);
            }
        };
        // Helm charts pass an empty value for a flag that is not set.
        for path in [&mut cli.bench_report, &mut cli.web_config_file, &mut cli.record_dir] {
            *path = path.take().filter(|path| !path.as_os_str().is_empty());
        }
        // A variable can hold several values. Spaces separate URLs. Names may contain spaces, so commas separate them.
        for (flag, values, separator) in [
            ("source", &mut cli.source, char::is_whitespace as fn(char) -> bool),
            ("model", &mut cli.model, between_names),
            ("model_version", &mut cli.model_version, between_names),
        ] {
            if matches.value_source(flag) == Some(ValueSource::EnvVariable) {
                split(values, separator);
            }
        }
        if let (Some(super::Command::Doctor(arguments)), Some((_, matches))) = (&mut cli.command, matches.subcommand())
            && matches.value_source("source") == Some(ValueSource::EnvVariable)
        {
            split(&mut arguments.source, char::is_whitespace);
        }
        for (id, flag) in [("model", "--model"), ("model_version", "--model-version")] {
            if matches.value_source(id) == Some(ValueSource::CommandLine)
                && cli.source.is_empty()
                && mistakes.is_empty()
            {
                mistakes.add(format!(
                    "{flag} names the engine of a --source, but there is none; add --source or remove the flag"
                ));
            }
        }
        // The file is checked as if the exporter started with it.
        if let Some(super::Command::CheckConfig { file }) = &cli.command {
            cli.config_file = Some(file.clone());
        }
        if matches!(cli.command, None | Some(super::Command::CheckConfig { .. })) {
            variables::check(&Self::command(), &mut mistakes);
        } else if !mistakes.is_empty() {
            return Err(mistakes);
        }
        cli.mistakes = mistakes;
        Ok(cli)
    }
}

/// The command line without the variables that count as not set, in all commands: compose files and charts set a variable to
/// nothing if they have no value for it.
fn without_variables(command: Command, ignored: &dyn Fn(&OsStr) -> bool) -> Command {
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(variable) if ignored(variable) => argument.env(Resettable::<clap::builder::OsStr>::Reset),
        _ => argument,
    });
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |subcommand| without_variables(subcommand, ignored))
    })
}

/// True for a character that separates names in a variable.
fn between_names(letter: char) -> bool {
    matches!(letter, '\n' | ',')
}

/// Splits the value of a variable.
fn split(values: &mut Vec<String>, separator: fn(char) -> bool) {
    let all = std::mem::take(values);
    let all = all.iter().flat_map(|value| value.split(separator)).filter(|value| !value.trim().is_empty());
    *values = all.map(str::to_owned).collect();
}

/// Bounds the number of times that the command line is parsed.
const MAX_MISTAKES: usize = 100;

/// Parses the command line without its invalid arguments. `None` if the rest cannot be parsed. Ends the process for `--help`.
fn matches(mut command: Command, mut arguments: Vec<OsString>, mistakes: &mut Mistakes) -> Option<ArgMatches> {
    for _ in 0..MAX_MISTAKES {
        match command.clone().try_get_matches_from(&arguments) {
            Ok(matches) => return Some(matches),
            // After a mistake, do not print the text of --help: it would hide the mistake.
            Err(error) if !error.use_stderr() => match mistakes.is_empty() {
                true => error.exit(),
                false => return None,
            },
            Err(error) => {
                let mistake = Mistake::of(&error, &arguments, &command);
                mistakes.add(mistake.text(&error, &command));
                if !mistake.leave_out(error.kind(), &mut arguments, &mut command) {
                    return None;
                }
            }
        }
    }
    None
}

/// An argument that clap does not accept.
struct Mistake {
    /// `--flag`, or the argument itself.
    name: String,
    value: Option<String>,
    /// The environment variable that gave the value.
    variable: Option<String>,
}

impl Mistake {
    fn of(error: &clap::Error, arguments: &[OsString], command: &Command) -> Self {
        let context = |kind| error.get(kind).map(ToString::to_string);
        let name =
            context(ContextKind::InvalidArg).or_else(|| context(ContextKind::InvalidSubcommand)).unwrap_or_default();
        // clap appends a placeholder for the value: `--flag <VALUE>`.
        let name = match name.starts_with("--") {
            true => name.split(' ').next().unwrap_or_default().to_owned(),
            false => name,
        };
        // clap reads `-web.port-file` as the short flags -w, -e, -b and so on.
        let whole = arguments.iter().map(|argument| argument.to_string_lossy()).find(|argument| {
            name.len() == 2 && name.starts_with('-') && argument.starts_with(&name) && !argument.starts_with("--")
        });
        let name = whole.map_or(name, |argument| argument.split('=').next().unwrap_or_default().to_owned());
        let is_given = arguments.iter().any(|argument| is_flag(argument, &name));
        let variable = if is_given { None } else { variable_of(command, &name) };
        Self { name, value: context(ContextKind::InvalidValue), variable }
    }

    /// One line that says what is wrong and what to do.
    fn text(&self, error: &clap::Error, command: &Command) -> String {
        let flag = match &self.variable {
            Some(variable) => format!("{variable} ({})", self.name),
            None => self.name.clone(),
        };
        let value = hide_secrets_of_url(self.value.as_deref().unwrap_or_default());
        let list = |kind| error.get(kind).map(ToString::to_string);
        let name = hide_secrets_of_url(&self.name);
        // clap has no suggestion for a flag with a single dash or with capital letters.
        let near = || {
            let flags = command.get_arguments().filter_map(Arg::get_long);
            nearest(name.trim_start_matches('-'), flags).map(|flag| long(Some(flag)))
        };
        match error.kind() {
            ErrorKind::ValueValidation => {
                let why = error.source().map(ToString::to_string).unwrap_or_default();
                format!("{flag} {value:?}: {}", hide_secrets(&why))
            }
            ErrorKind::InvalidValue if value.is_empty() => {
                format!("{flag}: the value is missing; write {} VALUE", self.name)
            }
            ErrorKind::InvalidValue => {
                format!(
                    "{flag} {value:?}: unknown value; use one of {}",
                    list(ContextKind::ValidValue).unwrap_or_default()
                )
            }
            ErrorKind::UnknownArgument
                if command.get_arguments().any(|argument| long(argument.get_long()) == self.name) =>
            {
                format!("{name}: this flag is the exporter's; write it before the command")
            }
            ErrorKind::UnknownArgument if self.name.starts_with('-') => {
                // Other programs have these flags for their listen address. clap would suggest --web.port-file for --port.
                let address = ["--port", "-p", "--listen", "--address"]
                    .contains(&&*self.name)
                    .then(|| "--web.listen-address".to_owned());
                match address.or(list(ContextKind::SuggestedArg)).or(near()) {
                    Some(other) => format!("{name}: unknown flag; did you mean {other}? (see --help)"),
                    None => format!("{name}: unknown flag; trtllm-exporter help lists all, --help the usual ones"),
                }
            }
            ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => match list(ContextKind::SuggestedSubcommand) {
                Some(other) => format!("{name:?}: unknown command; did you mean {other}? (see --help)"),
                None => format!("{name:?}: not a command; a flag begins with -- (see --help)"),
            },
            ErrorKind::ArgumentConflict => match list(ContextKind::PriorArg) {
                Some(other) if !other.starts_with(&self.name) => {
                    format!(
                        "{flag} cannot be combined with {}; remove one of them",
                        other.split(' ').next().unwrap_or_default()
                    )
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

    /// Removes the argument, so that the next attempt to parse gets further. False if it cannot be removed.
    fn leave_out(&self, kind: ErrorKind, arguments: &mut Vec<OsString>, command: &mut Command) -> bool {
        if let Some(variable) = &self.variable {
            let text = std::env::var(variable).unwrap_or_default();
            let rest: Vec<&str> = text.split(',').filter(|part| Some(*part) != self.value.as_deref()).collect();
            let Some(id) = command
                .get_arguments()
                .find(|argument| long(argument.get_long()) == self.name)
                .map(|argument| argument.get_id().clone())
            else {
                return false;
            };
            *command = command.clone().mut_arg(id, |argument| argument.env(Resettable::<clap::builder::OsStr>::Reset));
            if text.contains(',') && !rest.is_empty() {
                arguments.insert(1, format!("{}={}", self.name, rest.join(",")).into());
            }
            return true;
        }
        match kind {
            ErrorKind::ValueValidation | ErrorKind::InvalidValue if self.name.starts_with('-') => {
                self.leave_out_value(arguments)
            }
            ErrorKind::UnknownArgument | ErrorKind::ArgumentConflict | ErrorKind::InvalidSubcommand => {
                let Some(at) = arguments.iter().skip(1).position(|argument| is_flag(argument, &self.name)) else {
                    return false;
                };
                if kind == ErrorKind::InvalidSubcommand {
                    // Remove the unknown command and all arguments after it, because they belong to it.
                    arguments.truncate(at + 1);
                    return true;
                }
                let removed = arguments.remove(at + 1);
                let is_pair = self.name.starts_with('-') && removed == *self.name;
                let is_value = |next: &OsString| {
                    let text = next.to_string_lossy();
                    !text.starts_with('-') && command.get_subcommands().all(|command| command.get_name() != text)
                };
                if is_pair && arguments.get(at + 1).is_some_and(is_value) {
                    arguments.remove(at + 1);
                }
                true
            }
            _ => false,
        }
    }

    /// Removes the value. If it is an item of a list, the other items stay.
    fn leave_out_value(&self, arguments: &mut Vec<OsString>) -> bool {
        let value = self.value.clone().unwrap_or_default();
        let without = |text: &str| {
            let parts: Vec<&str> = text.split(',').filter(|part| *part != value).collect();
            (text == value || parts.len() < text.split(',').count())
                .then(|| if text == value { String::new() } else { parts.join(",") })
        };
        for at in 1..arguments.len() {
            let text = arguments[at].to_string_lossy().into_owned();
            let next = arguments.get(at + 1).map(|next| next.to_string_lossy().into_owned());
            let (count, given) = match text.strip_prefix(&self.name) {
                Some("") => (2, next.unwrap_or_default()),
                Some(rest) if rest.starts_with('=') => (1, rest[1..].to_owned()),
                _ => continue,
            };
            if let Some(rest) = without(&given) {
                arguments.drain(at..arguments.len().min(at + count));
                if !rest.is_empty() {
                    arguments.insert(at, format!("{}={rest}", self.name).into());
                }
                return true;
            }
        }
        false
    }
}

fn long(name: Option<&str>) -> String {
    name.map(|name| format!("--{name}")).unwrap_or_default()
}

/// True if the argument is `name`, or `name=VALUE` for a flag.
fn is_flag(argument: &OsStr, name: &str) -> bool {
    let text = argument.to_string_lossy();
    text.strip_prefix(name).is_some_and(|rest| rest.is_empty() || (name.starts_with('-') && rest.starts_with('=')))
}

/// The environment variable of this flag, if it is set.
fn variable_of(command: &Command, name: &str) -> Option<String> {
    let argument = command.get_arguments().find(|argument| long(argument.get_long()) == name)?;
    let variable = argument.get_env()?.to_str()?;
    std::env::var_os(variable).map(|_| variable.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_ignored_is_one_of_no_flag_in_any_command() {
        fn variables(command: &Command) -> usize {
            let own = command.get_arguments().filter(|argument| argument.get_env().is_some()).count();
            own + command.get_subcommands().map(variables).sum::<usize>()
        }
        let command = Cli::command();
        let all = variables(&command);
        let of_source = |variable: &OsStr| variable == "TRTLLM_EXPORTER_SOURCE";
        // `doctor` reads this variable, too.
        assert_eq!(variables(&without_variables(command.clone(), &of_source)), all - 2);
        assert_eq!(variables(&without_variables(command, &|_| true)), 0);
    }
}
