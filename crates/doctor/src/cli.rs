//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use trtllm_config::ConfigError;
use trtllm_config::command_line::{self, Shell};
use trtllm_page::build;

/// Say what limits TensorRT-LLM engines, from running exporters (trtllm-exporter) or from their recordings.
#[derive(Debug, Parser)]
#[command(name = "trtllm-doctor", version = build::LINE, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch exporters, then say what limits each engine. Exit code: 0, or 3 after a warning, 4 after something critical
    Diagnose(DiagnoseArgs),
    /// Show engines and GPUs of running exporters in the terminal. Without a terminal, print them once; exit code 4 if an
    /// exporter does not answer
    Top(TopArgs),
    /// Say what an engine would do with another limit or load. Exit code: 0, or 3 if the question is refused
    WhatIf(WhatIfArgs),
    /// Compare two engines, or one at two times. Each is the URL of a running exporter, or the directory of a recording
    /// (--record.dir), with a time: DIR@-2h or DIR@2026-11-23T04:00:00Z. Says what equal work costs, apart from the load. Exit
    /// code: 0, or 3 if the costs cannot be compared
    Compare(CompareArgs),
    /// Write a trace for Perfetto from a recording. (zstdcat DIR/*.rec.zst prints the lines of a recording.)
    Export(ExportArgs),
    /// Print the manual page in roff format
    Man,
    /// Print the completions of a shell
    Completions { shell: Shell },
}

impl Cli {
    /// Reads the command line and the environment, or returns the first mistake in them. Ends the process for `--help`.
    pub fn read() -> Result<Self, ConfigError> {
        let matches = command_line::parse(
            &with_variables(command_line::is_not_empty),
            &std::env::args_os().collect::<Vec<OsString>>(),
        )?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|error| ConfigError::Other(error.to_string()))?;
        if let (Command::Diagnose(arguments), Some((_, matches))) = (&mut cli.command, matches.subcommand()) {
            arguments.choose_sources(matches)?;
        }
        Ok(cli)
    }
}

impl DiagnoseArgs {
    /// Applies the variables of `--source` and `--config.file`. Fails if flags exclude each other. A flag beats a variable.
    fn choose_sources(&mut self, matches: &ArgMatches) -> Result<(), ConfigError> {
        let [source, config_file] = ["source", "config_file"].map(|id| matches.value_source(id));
        let typed = Some(ValueSource::CommandLine);
        let instead = match (&self.log, &self.prometheus) {
            (Some(_), _) => Some("--log"),
            (_, Some(_)) => Some("--prometheus"),
            _ => None,
        };
        let excluded = match instead {
            Some(flag) if source == typed => Some([flag, "--source"]),
            Some(flag) if config_file == typed => Some([flag, "--config.file"]),
            None if source.is_some() && source == config_file => Some(["--config.file", "--source"]),
            _ => None,
        };
        if let Some([flag, other]) = excluded {
            return Err(ConfigError::Other(format!("{flag} cannot be combined with {other}; remove one of them")));
        }
        if instead.is_some() || config_file == typed {
            self.source.clear();
        }
        if instead.is_some() || source == typed {
            self.config_file = None;
        }
        if source == Some(ValueSource::EnvVariable) {
            command_line::split(&mut self.source, char::is_whitespace);
        }
        Ok(())
    }
}

/// The command line with the environment variables of its flags. `diagnose` reads the exporter's variables of --source and
/// --config.file, because it asks the same sources.
#[must_use]
pub fn command() -> clap::Command {
    with_variables(|_| true)
}

fn with_variables(is_used: fn(&str) -> bool) -> clap::Command {
    let variable = move |argument| command_line::with_variable(argument, is_used);
    // mut_subcommand would put diagnose after the other commands of the manual page.
    Cli::command().mut_subcommands(|command| match command.get_name() {
        "diagnose" => command.mut_arg("source", variable).mut_arg("config_file", variable),
        _ => command,
    })
}

/// Where an exporter listens by default.
const DEFAULT_EXPORTER: &str = "http://127.0.0.1:8002";

/// The exporters to read, and how.
#[derive(Debug, Clone, Args)]
pub struct ClientOptions {
    /// Exporters to read: HOST:PORT or http(s)://HOST:PORT, and the path of the metrics page if it is not /metrics
    #[arg(value_name = "URL", default_value = DEFAULT_EXPORTER)]
    pub urls: Vec<String>,

    /// For https: trust these certificate authorities (PEM) instead of the system's. Also the server's own certificate
    #[arg(long = "ca-file", value_name = "PATH")]
    pub ca_file: Option<PathBuf>,

    /// File with USER:PASSWORD on one line, for an exporter with basic authentication
    #[arg(long = "user-file", value_name = "PATH", conflicts_with = "bearer_token_file")]
    pub user_file: Option<PathBuf>,

    /// File with a bearer token, for an exporter behind a proxy that asks for one
    #[arg(long = "bearer-token-file", value_name = "PATH")]
    pub bearer_token_file: Option<PathBuf>,
}

/// A recording to read instead of an exporter.
#[derive(Debug, Clone, Args)]
pub struct PastOptions {
    /// Instead of exporters, read this recording (--record.dir). Its exporter is not needed
    #[arg(long, value_name = "DIR", conflicts_with_all = ["urls", "ca_file", "user_file", "bearer_token_file"])]
    pub recording: Option<PathBuf>,

    /// The time in the recording: a time such as 2026-11-23T04:00:00Z, or a duration before now. Default: its end
    #[arg(long = "at", value_name = "TIME", value_parser = time_us, allow_hyphen_values = true, requires = "recording")]
    pub at_us: Option<i64>,
}

/// Arguments of `diagnose`.
#[derive(Debug, Clone, Args)]
pub struct DiagnoseArgs {
    #[command(flatten)]
    pub connection: ClientOptions,

    #[command(flatten)]
    pub past: PastOptions,

    /// Of a recording, only this engine: MODEL, MODEL:VERSION, or MODEL:VERSION:NAMESPACE/POD
    #[arg(long, value_name = "NAME", requires = "recording")]
    pub engine: Option<String>,

    /// Instead of exporters, read this log of a server to its end (print_iter_log: true). Needs neither the server nor
    /// an exporter
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["urls", "recording", "bundle", "prometheus"])]
    pub log: Option<PathBuf>,

    /// Output format: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: ReportFormat,

    /// Also write what a bug report needs to this file, without secrets, names and addresses
    #[arg(long, value_name = "PATH")]
    pub bundle: Option<PathBuf>,

    /// Also ask this source of an engine (repeatable), as in the exporter's --source. Default: each trtllm-serve of this
    /// host, if an exporter of this host is read. The variable may hold several, separated by spaces or newlines
    #[arg(long, value_name = "URL")]
    pub source: Vec<String>,

    /// Also ask the sources in this file of the exporter
    #[arg(long = "config.file", value_name = "PATH")]
    pub config_file: Option<PathBuf>,

    /// Do not ask any source
    #[arg(long = "no-sources")]
    pub no_sources: bool,

    /// Instead of exporters, ask this Prometheus which replica of a model differs from its siblings
    #[arg(long, value_name = "URL", conflicts_with_all = ["urls", "recording", "bundle"])]
    pub prometheus: Option<String>,

    /// Print all rules as markdown and exit
    #[arg(long)]
    pub rules: bool,
}

/// Arguments of `top`.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub connection: ClientOptions,

    /// Time between two reads of an exporter
    #[arg(long, value_name = "D", default_value = "2s", value_parser = humantime::parse_duration)]
    pub interval: Duration,

    /// Print the numbers as text and exit. Always if the output is not a terminal
    #[arg(long)]
    pub once: bool,
}

/// Arguments of `what-if`.
#[derive(Debug, Clone, Args)]
pub struct WhatIfArgs {
    #[command(flatten)]
    pub connection: ClientOptions,

    #[command(flatten)]
    pub past: PastOptions,

    /// The engine, if there are several: MODEL, MODEL:VERSION, or MODEL:VERSION:NAMESPACE/POD
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,

    /// A setting to change (repeatable): max_batch_size, max_num_tokens, max_tokens (of the KV cache),
    /// capacity_scheduler_policy, enable_chunked_prefill, disable_overlap_scheduler, replicas
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,

    /// Another load, as a multiple of the present one
    #[arg(long, value_name = "FACTOR", default_value = "1x")]
    pub rate: String,

    /// Output format: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: ReportFormat,
}

/// Arguments of `compare`.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub connection: ClientOptions,

    /// The engine, if an exporter has several: MODEL, MODEL:VERSION, or MODEL:VERSION:NAMESPACE/POD. Twice, if the second URL
    /// has another one
    #[arg(long, value_name = "NAME")]
    pub engine: Vec<String>,

    /// Output format: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: ReportFormat,
}

/// Arguments of `export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// Directory of the recording, as in --record.dir. Its exporter may run
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Engine to write: MODEL, MODEL:VERSION, or MODEL:VERSION:NAMESPACE/POD. Default: all, one after the other
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,

    /// Begin at this time: a duration before now such as 10m, or a time such as 2026-11-23T04:00:00Z
    #[arg(long = "from", value_name = "TIME", value_parser = time_us, allow_hyphen_values = true)]
    pub from_us: Option<i64>,

    /// End before this time
    #[arg(long = "until", value_name = "TIME", value_parser = time_us, allow_hyphen_values = true)]
    pub until_us: Option<i64>,

    /// File to write. Default: stdout
    #[arg(long, value_name = "PATH")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    Text,
    Json,
}

/// A time, or a duration before now with or without a minus sign, in microseconds since 1970 UTC.
pub fn time_us(text: &str) -> Result<i64, String> {
    let ago = text.strip_prefix('-').unwrap_or(text);
    let before_now = || SystemTime::now().checked_sub(humantime::parse_duration(ago).ok()?);
    let time = humantime::parse_rfc3339_weak(text).ok().or_else(before_now).ok_or(
        "this is not a time; write a duration before now such as 10m or -10m, or a time such as 2026-11-23T04:00:00Z",
    )?;
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_iso_or_a_duration_before_now() {
        for text in ["1970-01-02T00:00:00Z", "1970-01-02 00:00:00"] {
            assert_eq!(time_us(text), Ok(86_400_000_000), "{text}");
        }
        let now = time_us("0s").unwrap();
        for (text, seconds) in [("10m", 600), ("-10m", 600), ("-2h", 7200), ("1h 30m", 5400)] {
            let ago = now - time_us(text).unwrap();
            assert!((seconds - 2..=seconds).contains(&((ago + 500_000) / 1_000_000)), "{text}: {ago}");
        }
        for text in ["", "-", "--2h", "+2h", "2", "-1", "noon", "-1970-01-02T00:00:00Z"] {
            assert!(time_us(text).unwrap_err().contains("10m"), "{text}");
        }
    }
}
