//! `--help`: what most people need, on one screen. `trtllm-exporter help` explains every flag.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::Command;

/// The most used flags, in this order.
const FIRST: [(&str, &str); 10] = [
    ("source", "An engine (repeatable): auto, trtllm-serve:http://HOST:PORT, socket:PATH, sim:"),
    ("config.file", "YAML file with several engines; `init` writes one"),
    ("model", "Label `model` of the engines of --source"),
    ("web.listen-address", "Where to serve the metrics: HOST:PORT, :PORT or unix:PATH"),
    ("web.config.file", "TLS and passwords, as for other exporters of Prometheus"),
    ("gpu", "GPU metrics: off, auto or required"),
    ("metrics.compat", "Also the names of trtllm, vllm, triton-core, dcgm"),
    ("record.dir", "Keep the last records of every engine in this directory"),
    ("log.level", "error, warn, info, debug or trace"),
    ("dry-run", "Print the sources, addresses and files that would be used, and exit"),
];

/// What each command does, in a few words.
const COMMANDS: [(&str, &str); 5] = [
    ("check-config", "Check a --config.file and all flags"),
    ("init", "Write a configuration with the engines that are found here"),
    ("catalog", "Print all metrics"),
    ("man", "Print the manual page"),
    ("completions", "Print the completions of a shell"),
];

/// True if the arguments ask for the help of the exporter itself, not of a command.
pub(super) fn is_asked_for(arguments: &[OsString], command: &Command) -> bool {
    let is_command = |text: &str| command.get_subcommands().any(|command| command.get_name() == text) || text == "help";
    let texts = arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
    texts.take_while(|text| !is_command(text)).any(|text| text == "-h" || text == "--help")
}

/// Prints the overview and ends the process.
pub(super) fn print(command: Command) {
    let shown = overview(command).try_get_matches_from(["trtllm-exporter", "-h"]);
    shown.unwrap_or_else(|error| error.exit());
}

/// The command with the overview as its help.
fn overview(mut command: Command) -> Command {
    let rest = rest(&command);
    let (order, names): (Vec<_>, Vec<_>) = FIRST.iter().map(|(name, text)| (*name, *text)).unzip();
    command = command.mut_args(|argument| {
        let at = order.iter().position(|name| argument.get_long() == Some(name));
        // Hide clap's list of possible values: the texts above name them. clap can hide it only for flags with a value.
        let hides = argument.get_action().takes_values();
        let argument = if hides { argument.hide_possible_values(true) } else { argument };
        match at {
            Some(at) => argument.help(names[at]).display_order(at).hide_env(true),
            None => argument.hide(true),
        }
    });
    for (at, (name, text)) in COMMANDS.iter().enumerate() {
        command = command.mut_subcommand(*name, |command| command.about(*text).display_order(at));
    }
    command
        .disable_help_subcommand(true)
        .term_width(100)
        .help_template("{about}\n\n{usage-heading} {usage}\n\nMost used:\n{options}\n\nCommands:\n{subcommands}{after-help}")
        .after_help(format!(
            "All other flags:\n{rest}\n\nEach flag can be a variable: TRTLLM_EXPORTER_SOURCE, TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS.\n\
             `trtllm-exporter help` explains all flags, `trtllm-exporter help COMMAND` those of a command.\n\
             To ask a running exporter what limits its engines, run trtllm-doctor."
        ))
}

/// The flags that are not in `FIRST`, grouped by the part of their name before the dot.
fn rest(command: &Command) -> String {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let flags = command.get_arguments().filter_map(|argument| argument.get_long());
    for flag in flags.filter(|flag| FIRST.iter().all(|(first, _)| first != flag)) {
        let group = flag.split_once('.').map_or("engines", |(group, _)| group);
        let group = if group == "ingest" || group == "engine" { "engines" } else { group };
        groups.entry(group).or_default().push(format!("--{flag}"));
    }
    let lines = groups.iter().map(|(group, flags)| {
        let flags = textwrap(flags, 85);
        format!("  {group:<10}{}", flags.join(&format!("\n{:12}", "")))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Joins the words into lines of at most `width` bytes.
fn textwrap(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.clone()),
        }
    }
    lines
}
