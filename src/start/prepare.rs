//! Reads and checks the configuration before the daemon starts, and defines the errors of the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exporter_web_config::WebConfig;

use crate::cli::{Cli, DEFAULT_SOCKET};
use trtllm_config::{ConfigError, EngineConfig};
use trtllm_gpu::GpuError;
use trtllm_http::listen;
use trtllm_recording::recorder::RecorderError;
use trtllm_sources::OpenError;

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Source(#[from] OpenError),
    #[error(transparent)]
    Bind(#[from] listen::BindError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error(transparent)]
    Recorder(#[from] RecorderError),
    #[error("--web.port-file {}: {cause}; choose a path in a writable directory", path.display())]
    PortFile { path: PathBuf, cause: std::io::Error },
    #[error("system error: {0}; check the limits of open files, processes and memory (ulimit -a)")]
    System(#[from] std::io::Error),
}

impl StartError {
    /// 2 for a usage or configuration error, 1 for anything else.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Config(error) => error.exit_code(),
            // An engine in this process does not start: its directory or its options are wrong.
            Self::Source(OpenError::Engine { .. }) => 2,
            _ => 1,
        }
    }
}

/// What was read and checked before the start.
#[derive(Debug)]
pub struct Prepared {
    pub engines: Vec<EngineConfig>,
    pub(super) web: Option<WebConfig>,
}

/// Reads and checks the command line, the environment and the files, or returns the first mistake in them. The daemon starts
/// with this; check-config and --dry-run only print its result.
pub fn prepare(cli: &Cli) -> Result<Prepared, ConfigError> {
    cli.check()?;
    // Without a source, engines can still publish to the default ingest socket.
    let default = || vec![EngineConfig::default_socket(Path::new(DEFAULT_SOCKET), cli.sources.objectives)];
    let mut engines = cli.sources.engines()?.unwrap_or_else(default);
    if let Some(report) = cli.sources.bench_report()? {
        engines.iter_mut().for_each(|engine| engine.bench_report = Some(Arc::clone(&report)));
    }
    if cli.sources.gpu_hour_cost.is_some() {
        engines.iter_mut().for_each(|engine| engine.gpu_hour_cost = cli.sources.gpu_hour_cost);
    }
    // Helm charts pass an empty value for a flag that is not set.
    if let Some(url) = cli.sources.otlp_endpoint.as_deref().filter(|url| !url.is_empty()) {
        let receives = engines.iter().any(|engine| engine.source.span_receiver().is_some());
        for engine in engines.iter_mut().filter(|engine| !receives || engine.source.span_receiver().is_some()) {
            let wrong = |why| ConfigError::flag("--otlp.endpoint", url, why);
            engine.source.forward_spans(url).map_err(wrong)?;
        }
    }
    let web = cli.web.web_config_file.as_deref().map(WebConfig::load).transpose();
    let web = web.map_err(|error| ConfigError::Other(format!("--web.config.file {error}")))?;
    if let Some(recorder) = cli.recorder() {
        recorder.check().map_err(|error| ConfigError::Other(error.to_string()))?;
    }
    Ok(Prepared { engines, web })
}
