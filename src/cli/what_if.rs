//! The command lines of questions about engines: `what-if` and `compare`.

use clap::Args;

use super::{ClientOptions, PastOptions, ReportFormat};

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
    /// capacity_scheduler_policy, enable_chunked_prefill, replicas
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
