//! Limits and combinations of flags.

use std::path::Path;
use std::time::Duration;

use trtllm_http::listen;

use super::Cli;
use trtllm_config::ConfigError;

/// A segment has at least 256 KiB, and the oldest one is deleted for a new one. A smaller recording would keep too few.
const MIN_RECORDING: u64 = 4 << 20;

impl Cli {
    /// Checks limits and combinations of flags. Fails with the first mistake.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |flag, value: String, why: String| Err(ConfigError::flag(flag, value, why));
        let bounds = [
            ("--poll.interval", self.poll.interval, Duration::from_millis(1), Duration::from_secs(3600)),
            ("--poll.timeout", self.poll.timeout, Duration::from_millis(1), Duration::from_secs(3600)),
            ("--stale-after", self.poll.stale_after, Duration::from_secs(1), Duration::from_secs(86_400)),
            ("--engine.forget-after", self.forget_after, Duration::from_secs(1), Duration::from_secs(30 * 86_400)),
            ("--gpu.interval", self.gpu.interval, Duration::from_millis(100), Duration::from_secs(3600)),
        ];
        for (flag, value, least, most) in bounds {
            if value < least || value > most {
                return wrong(
                    flag,
                    format!("{value:?}"),
                    format!("must be between {least:?} and {most:?}; correct it"),
                );
            }
        }
        // One late poll must not make an engine stale.
        if self.poll.stale_after < 2 * self.poll.interval {
            let why = format!("must be at least twice --poll.interval ({:?}); raise it", self.poll.interval);
            return wrong("--stale-after", format!("{:?}", self.poll.stale_after), why);
        }
        if self.record.max_size < MIN_RECORDING {
            let why = format!("must be at least {}MiB; raise it", MIN_RECORDING >> 20);
            return wrong("--record.max-size", self.record.max_size.to_string(), why);
        }
        let for_source = [
            ("--objectives", self.sources.objectives.any().then(|| self.sources.objectives.to_string()), "objectives"),
            ("--cost.gpu-hour", self.sources.gpu_hour_cost.map(|cost| cost.to_string()), "gpu_hour_cost"),
            ("--otlp.endpoint", self.sources.otlp_endpoint.clone().filter(|url| !url.is_empty()), "otlp_endpoint"),
            (
                "--bench-report",
                self.sources.bench_report.as_ref().map(|file| file.display().to_string()),
                "bench_report",
            ),
        ];
        for (flag, value, key) in for_source {
            if let Some(value) = value.filter(|_| self.sources.config_file.is_some()) {
                let why = format!("is for --source; in a --config.file, give each engine the key {key}");
                return wrong(flag, value, why);
            }
        }
        if let Some(folder) =
            self.web.port_file.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty())
            && let Err(error) = std::fs::read_dir(folder)
        {
            let why = format!("cannot read this directory: {error}; choose a path in a writable directory");
            return wrong("--web.port-file", folder.display().to_string(), why);
        }
        let pages = if self.web.systemd_socket { &[][..] } else { &self.web.listen_address };
        for (flag, addresses) in
            [("--web.listen-address", pages), ("--web.health-address", &self.web.health_addresses()?)]
        {
            listen::check(addresses, flag).map_err(|error| ConfigError::Other(error.to_string()))?;
        }
        Ok(())
    }
}
