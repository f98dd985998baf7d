//! The command line as typed. Each flag can also be set by the environment variable
//! `TRTLLM_EXPORTER_<FLAG>` ([`command`]).

mod flags;
mod limits;
mod parsing;
mod values;
mod variables;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use trtllm_config::command_line::Shell;
use trtllm_config::{self as config, ConfigError, EngineConfig, SourceSpec};
use trtllm_page::build;
use trtllm_page::metrics::catalog::Profile;
use trtllm_page::metrics::compat::CompatSets;
use trtllm_recording::recorder::RecorderConfig;
use trtllm_service::log::LogFormat;

use values::{duration, integer, log_level, one_of};

pub use flags::{GpuFlags, PollFlags, RecordFlags, SourceFlags, WebFlags};
pub use variables::command;

/// The default ingest socket.
pub const DEFAULT_SOCKET: &str = "/run/trtllm-exporter/ingest.sock";

/// A value of --metrics.compat, and the set of families that it adds.
type CompatSet = (&'static str, fn(&mut CompatSets) -> &mut bool);

const COMPAT_SETS: [CompatSet; 5] = [
    ("trtllm", |sets| &mut sets.trtllm),
    ("vllm", |sets| &mut sets.vllm),
    ("triton-core", |sets| &mut sets.triton_core),
    ("dcgm", |sets| &mut sets.dcgm),
    ("spec", |sets| &mut sets.spec),
];

/// Prometheus exporter for NVIDIA TensorRT-LLM engines and their GPUs.
#[derive(Debug, Parser)]
#[command(name = "trtllm-exporter", version = build::LINE, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub sources: SourceFlags,

    #[command(flatten)]
    pub web: WebFlags,

    #[command(flatten)]
    pub poll: PollFlags,

    #[command(flatten)]
    pub gpu: GpuFlags,

    /// Families on the metrics page: full, or default (what the alerts, dashboards and autoscalers that come with the exporter read, a
    /// third of the series of an engine), as the Helm chart sets it
    #[arg(
        long = "metrics.profile",
        value_name = "PROFILE",
        default_value = "full",
        value_parser = one_of(Profile::ALL.map(|profile| (profile.name(), profile)))
    )]
    pub profile: Profile,

    /// Additional metric names of other exporters: trtllm (trtllm-serve), vllm (vllm:*), triton-core (nv_inference_*), dcgm (DCGM_FI_*), spec
    #[arg(long = "metrics.compat", value_name = "LIST", value_delimiter = ',', value_parser = COMPAT_SETS.map(|(name, _)| name))]
    pub compat: Vec<String>,

    /// User id that may publish to ingest sockets (repeatable). Default: everybody who may open the socket
    #[arg(long = "ingest.allow-uid", value_name = "UID", value_parser = integer::<u32>, value_delimiter = ',')]
    pub allow_uid: Vec<u32>,

    /// Time to keep an engine's series after its last publisher has left, or auto or kubernetes: last found it. Below 24h, its
    /// alerts end early
    #[arg(long = "engine.forget-after", value_name = "D", default_value = "25h", value_parser = duration, allow_hyphen_values = true)]
    pub forget_after: Duration,

    #[command(flatten)]
    pub record: RecordFlags,

    /// Log level: error, warn, info, debug or trace
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    pub log_level: tracing::Level,

    /// Print the sources, the listen addresses and the files that would be used, and exit. Checks as check-config does
    #[arg(long = "dry-run")]
    pub dry_run: bool,

    /// Log format: logfmt or json
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "logfmt", value_parser = one_of(LogFormat::ALL))]
    pub log_format: LogFormat,
}

/// A command to run instead of the exporter.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a --config.file and the files it names, as a start with it does, and print its engines
    CheckConfig { file: PathBuf },
    /// Write a commented configuration with the engines that are found now, as --source auto finds them
    Init(InitArgs),
    /// Print all metrics with type, unit, labels, help and origin
    Catalog {
        #[arg(long, value_name = "FORMAT", default_value = "markdown")]
        format: CatalogFormat,
        /// Print the scenarios of the simulated engine instead, for --source sim:?scenario=NAME
        #[arg(long)]
        scenarios: bool,
        /// Print the answers of the drills, too
        #[arg(long, requires = "scenarios")]
        answers: bool,
    },
    /// Print the manual page in roff format
    Man,
    /// Print the completions of a shell
    Completions { shell: Shell },
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// File to write. It must not exist. Default: the configuration is printed
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Ports of this host to ask for a trtllm-serve (repeatable), beside those that its processes name
    #[arg(long, value_name = "PORT", value_delimiter = ',', default_value = "8000")]
    pub ports: Vec<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CatalogFormat {
    Markdown,
    Json,
}

impl Cli {
    /// The sets of additional metric names that --metrics.compat selects.
    #[must_use]
    pub fn compat_sets(&self) -> CompatSets {
        let mut sets = CompatSets::default();
        for (name, set) in COMPAT_SETS {
            *set(&mut sets) = self.compat.iter().any(|selected| selected == name);
        }
        sets
    }

    /// The settings of the flight recorder. `None` without --record.dir.
    #[must_use]
    pub fn recorder(&self) -> Option<RecorderConfig> {
        let RecordFlags { dir, max_size, max_age } = &self.record;
        let directory = dir.clone()?;
        Some(RecorderConfig { directory, max_size: *max_size, max_age: *max_age, stale_after: self.poll.stale_after })
    }
}

/// Reads and checks `--config.file`, or returns its first mistake. A start, a reload and check-config accept the same
/// files, because all three call this.
pub fn read_file(path: &Path) -> Result<Vec<EngineConfig>, ConfigError> {
    reject_executor_if_not_built(config::read_file(path)?)
}

/// The same engines. Fails if this program is built without the Executor, and one of them needs it.
fn reject_executor_if_not_built(engines: Vec<EngineConfig>) -> Result<Vec<EngineConfig>, ConfigError> {
    let executor_directory = |engine: &EngineConfig| match &engine.source {
        SourceSpec::Executor(hosting) => Some(hosting.engine.clone()),
        _ => None,
    };
    match engines.iter().find_map(executor_directory).filter(|_| !cfg!(feature = "executor")) {
        Some(directory) => Err(ConfigError::Other(format!(
            "executor:{directory}: this build has no Executor; build it with the feature \"executor\""
        ))),
        None => Ok(engines),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_form_of_a_source_is_in_the_help() {
        let command = super::command();
        let source = command.get_arguments().find(|argument| argument.get_id() == "source").unwrap();
        let help = source.get_help().unwrap().to_string();
        for form in trtllm_config::FORMS {
            let scheme = form.split_inclusive(':').next().unwrap();
            assert!(help.contains(scheme), "{scheme} is missing in the help of --source");
        }
    }

    /// An engine that leaves the page of a running exporter ends its alerts, which last for a day.
    #[test]
    fn an_engine_stays_on_the_page_for_longer_than_its_alerts_last() {
        let cli = <super::Cli as clap::Parser>::parse_from(["trtllm-exporter"]);
        let rules = include_str!("../deploy/prometheus/alerts.yml");
        assert!(rules.contains("> time() - 86400\n") && cli.forget_after.as_secs() > 86400);
    }
}
