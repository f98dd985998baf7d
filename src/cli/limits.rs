//! Limits and combinations of flags.

use std::path::Path;
use std::time::Duration;

use trtllm_http::listen::Address;

use super::Cli;
use crate::config::{ConfigError, Mistakes};

/// Smaller recordings would consist of the totals with which each file begins.
const MIN_RECORDING: u64 = 4 << 20;

impl Cli {
    /// Checks limits and combinations of flags.
    pub fn check(&self, mistakes: &mut Mistakes) {
        // A flag that was left out has its default, with which others may not fit.
        let is_complete = mistakes.is_empty();
        let mut wrong = |flag, value: String, why: String| mistakes.add(ConfigError::flag(flag, value, why));
        let bounds = [
            ("--poll.interval", self.poll_interval, Duration::from_millis(1), Duration::from_secs(3600)),
            ("--poll.timeout", self.poll_timeout, Duration::from_millis(1), Duration::from_secs(3600)),
            ("--stale-after", self.stale_after, Duration::from_millis(100), Duration::from_secs(86_400)),
            ("--engine.forget-after", self.forget_after, Duration::from_secs(1), Duration::from_secs(30 * 86_400)),
            ("--gpu.interval", self.gpu_interval, Duration::from_millis(100), Duration::from_secs(3600)),
        ];
        for (flag, value, least, most) in bounds {
            if value < least || value > most {
                wrong(flag, format!("{value:?}"), format!("must be between {least:?} and {most:?}; correct it"));
            }
        }
        if self.record_max_size < MIN_RECORDING {
            let why = format!("must be at least {}MiB; raise it", MIN_RECORDING >> 20);
            wrong("--record.max-size", self.record_max_size.to_string(), why);
        }
        if self.objectives.any() && self.config_file.is_some() {
            let why = "is for --source; in a --config.file, give each engine the key objectives".to_owned();
            wrong("--objectives", self.objectives.to_string(), why);
        }
        if let (Some(cost), Some(_)) = (self.gpu_hour_cost, &self.config_file) {
            let why = "is for --source; in a --config.file, give each engine the key gpu_hour_cost".to_owned();
            wrong("--cost.gpu-hour", cost.to_string(), why);
        }
        if let (Some(report), Some(_)) = (self.bench_report_file(), &self.config_file) {
            let why = "is for --source; in a --config.file, give each engine the key bench_report".to_owned();
            wrong("--bench-report", report.display().to_string(), why);
        }
        if let Some(folder) =
            self.port_file.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty())
            && let Err(error) = std::fs::read_dir(folder)
        {
            let value = folder.display().to_string();
            wrong(
                "--web.port-file",
                value,
                format!("cannot use this directory: {error}; choose a path in a writable directory"),
            );
        }
        let health = self.health_addresses().unwrap_or_default();
        let health = health.into_iter().map(|address| ("--web.health-address", address));
        let pages = self.listen_address.iter().cloned().map(|address| ("--web.listen-address", address));
        let mut taken: Vec<Address> = Vec::new();
        for (flag, address) in pages.filter(|_| !self.systemd_socket).chain(health) {
            if taken.iter().any(|other| other.overlaps(&address)) {
                let why = "this address is given twice; remove one or choose another".to_owned();
                wrong(flag, address.to_string(), why);
            }
            taken.push(address);
        }
        if is_complete && self.stale_after <= self.poll_interval {
            let why = format!("must be longer than --poll.interval ({:?})", self.poll_interval);
            wrong("--stale-after", format!("{:?}", self.stale_after), why);
        }
    }
}
