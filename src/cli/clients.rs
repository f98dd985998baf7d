//! The command lines of the commands that read running exporters: `doctor`, `top`, `what-if` and `compare`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

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
    #[arg(long = "at", value_name = "TIME", value_parser = super::time_us, allow_hyphen_values = true, requires = "recording")]
    pub at_us: Option<i64>,
}

/// Arguments of `doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub connection: ClientOptions,

    #[command(flatten)]
    pub past: PastOptions,

    /// Of a recording, only this engine: MODEL or MODEL:VERSION
    #[arg(long, value_name = "NAME", requires = "recording")]
    pub engine: Option<String>,

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
    #[arg(long = "config.file", value_name = "PATH", conflicts_with = "source")]
    pub config_file: Option<PathBuf>,

    /// Do not ask any source
    #[arg(long = "no-sources")]
    pub no_sources: bool,

    /// Instead of exporters, ask this Prometheus which replica of a model differs from its siblings
    #[arg(long, value_name = "URL", conflicts_with_all = ["urls", "recording", "bundle", "source", "config_file"])]
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

    /// The engine, if there are several: MODEL or MODEL:VERSION
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

    /// The engine, if an exporter has several: MODEL or MODEL:VERSION. Twice, if the second URL has another one
    #[arg(long, value_name = "NAME")]
    pub engine: Vec<String>,

    /// Output format: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: ReportFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    Text,
    Json,
}
