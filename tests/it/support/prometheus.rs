//! Runs a real Prometheus server, version 2 or 3, on a free port.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::process::Process;
use super::{ensure, http, until};

/// A running Prometheus server with its own database.
pub(crate) struct Prometheus {
    _process: Process,
    address: String,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    pub(crate) fn start(binary: &Path, config: &str) -> Self {
        Self::with(binary, config, &[])
    }

    /// Starts the server with additional flags.
    pub(crate) fn with(binary: &Path, config: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [file, log, data] = ["prometheus.yml", "log", "data"].map(|name| folder.path().join(name));
        fs::write(&file, config).unwrap();
        let mut command = Command::new(binary);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", data.display()));
        command.args(["--web.listen-address=127.0.0.1:0", "--storage.tsdb.retention.time=1h"]).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        let mut process = Process::spawn(&mut command);
        let address = until(|| {
            let text = fs::read_to_string(&log).unwrap();
            if let Some(status) = process.try_wait().unwrap() {
                panic!("{} ended with {status}: {text}", binary.display());
            }
            // The port is in this log line: level=info msg="Listening on" address=127.0.0.1:41234
            let line = text.lines().find(|line| line.contains("Listening on"));
            let address = line.and_then(|line| line.split("address=").nth(1)?.split_whitespace().next());
            address.map(|address| address.trim_matches('"').to_owned()).ok_or_else(|| format!("no address: {text}"))
        });
        let prometheus = Self { _process: process, address, log, _folder: folder };
        until(|| {
            let answer = http::request("GET", &prometheus.address, "/-/ready", &[], b"").map_err(|e| e.to_string())?;
            ensure(answer.status == 200, || answer.text().to_owned())
        });
        prometheus
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        let answer = http::get(&self.address, &format!("/api/v1/{path}?{query}"));
        assert_eq!(answer.status, 200, "{path} {parameters:?}: {}", answer.text());
        answer.json()["data"].clone()
    }

    /// Health and last error of the only target of the scrape job `job`.
    pub(crate) fn target(&self, job: &str) -> Result<(String, String), String> {
        let targets = self.targets();
        let of_job = |target: &&Value| target["labels"]["job"] == job;
        let target = targets.as_array().and_then(|targets| targets.iter().find(of_job)).ok_or("no target")?;
        let text = |key: &str| target[key].as_str().unwrap_or_default().to_owned();
        Ok((text("health"), text("lastError")))
    }

    /// The value of an instant query. None if the result is empty; panics if it has several series.
    pub(crate) fn value(&self, query: &str, time: Option<f64>) -> Option<f64> {
        let time = time.unwrap_or_else(now).to_string();
        let result = self.api("query", &[("query", query), ("time", &time)])["result"].clone();
        let result = result.as_array().unwrap();
        assert!(result.len() <= 1, "{query} is more than one series: {result:?}");
        result.first().map(|series| series["value"][1].as_str().unwrap().parse().unwrap())
    }

    /// Waits until a query has this value.
    pub(crate) fn until_value(&self, query: &str, wanted: f64) {
        until(|| {
            let value = self.value(query, None);
            ensure(value == Some(wanted), || format!("{query} is {value:?}, not {wanted}; {}", self.targets()))
        });
    }

    pub(crate) fn targets(&self) -> Value {
        self.api("targets", &[("state", "active")])["activeTargets"].clone()
    }

    /// Waits until every target is scraped without an error.
    pub(crate) fn until_up(&self) {
        until(|| {
            let targets = self.targets();
            let up = |target: &Value| target["health"] == "up" && target["lastError"] == "";
            let targets = targets.as_array().unwrap();
            ensure(!targets.is_empty() && targets.iter().all(up), || format!("{targets:?}"))
        });
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        let names = self.api("label/__name__/values", &[]);
        names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!(
                "--- last lines of Prometheus's log\n{}---",
                log.lines().rev().take(20).collect::<Vec<_>>().join("\n")
            );
        }
    }
}

pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Prometheus 2 from Debian stable.
pub(crate) fn prometheus_2() -> PathBuf {
    super::program("prometheus")
}

/// Prometheus 3 from Debian unstable.
pub(crate) fn prometheus_3() -> PathBuf {
    super::tool("TRTLLM_TEST_PROMETHEUS3", "prometheus3/usr/bin/prometheus")
}
