//! The answer on each path, and the faults that a test can switch on.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::{Value, json};
use trtllm_sim::write;

use crate::http::{Kept, Request, answer, head, is_closed};
use crate::live::Live;
use crate::options::Arguments;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What GET /metrics does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Ok,
    /// The last record is cut in the middle.
    Truncated,
    /// The body has 100 MiB.
    Huge,
    /// No answer until the mode changes.
    Hang,
    #[serde(rename = "500")]
    Status500,
    /// The frontend that holds the records (the launcher's) no longer answers the other frontends.
    LauncherGone,
    /// The engine has ended, and the server still answers: no records, and /health says so.
    EngineGone,
    /// The model loads, and each path says so (TensorRT-LLM #17787).
    Starting,
}

/// The body of `POST /control`. What it does not name stays as it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Command {
    mode: Option<Mode>,
    /// `sim:?…`: replaces the load and the faults.
    engine: Option<String>,
    #[serde(default)]
    restart: bool,
    drain: Option<bool>,
    stop: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct Server {
    live: Arc<Mutex<Live>>,
    mode: Mutex<Mode>,
    arguments: Arguments,
    version: String,
}

impl Server {
    pub(crate) fn new(live: Arc<Mutex<Live>>, arguments: Arguments, version: String) -> Self {
        Self { live, mode: Mutex::new(Mode::Ok), arguments, version }
    }

    /// Runs all iterations that are due, and returns the engine.
    fn advanced(&self) -> MutexGuard<'_, Live> {
        let mut live = self.live.lock();
        live.advance(Instant::now());
        live
    }

    /// Answers a request to a frontend.
    pub(crate) fn answer(&self, frontend: usize, request: &Request, stream: &mut TcpStream) -> Kept {
        let is_post = request.method == "POST";
        let reply = |stream: &mut TcpStream, value: &Value| answer(request, stream, 200, JSON, &value.to_string());
        match (request.path.as_str(), is_post) {
            (path, _) if *self.mode.lock() == Mode::Starting && !matches!(path, "/truth" | "/control" | "/gpus") => {
                let body = json!({"code": "starting"}).to_string();
                let state = "\r\nretry-after: 1\r\nx-trtllm-server-state: starting";
                let head = head(503, &format!("{JSON}{state}"), body.len());
                stream.write_all((head + &body).as_bytes()).map(|()| true)
            }
            ("/version", false) => reply(stream, &json!({"version": self.version})),
            ("/health", false) => {
                let is_gone = *self.mode.lock() == Mode::EngineGone;
                let status = if !is_gone && self.live.lock().is_up(Instant::now()) { 200 } else { 503 };
                answer(request, stream, status, "text/plain", "")
            }
            ("/v1/models", false) => {
                let model =
                    json!({"id": self.arguments.model, "object": "model", "created": 0, "owned_by": "tensorrt_llm"});
                reply(stream, &json!({"object": "list", "data": [model]}))
            }
            ("/truth", false) => reply(stream, &self.truth()),
            ("/control", true) => self.control(request, stream),
            ("/gpus", false) => reply(stream, &self.advanced().gpus(Instant::now())),
            ("/prometheus/metrics", false) if self.arguments.is_orchestrator() => {
                let page = self.advanced().orchestrator.text();
                answer(request, stream, 200, TEXT, &page)
            }
            ("/cluster_info", false) if self.arguments.is_orchestrator() => reply(stream, &cluster()),
            _ if self.arguments.is_orchestrator() => not_found(request, stream),
            ("/prometheus/metrics", false) if self.arguments.prometheus => {
                let page = self.advanced().page(frontend, &self.arguments.model);
                answer(request, stream, 200, TEXT, &page)
            }
            ("/server_info", false) => {
                let startup = self.live.lock().engine().config().startup.clone();
                let mut stages = json!({});
                for (part, stage, seconds) in &startup {
                    stages[part][stage] = json!(seconds);
                    let sum = stages["py_executor"]["total_executor_creation_seconds"].as_f64().unwrap_or(0.0);
                    stages["py_executor"]["total_executor_creation_seconds"] = json!(sum + seconds);
                }
                reply(stream, &json!({"disaggregated_params": null, "startup_metrics": stages}))
            }
            ("/metrics", false) => self.metrics(frontend, request, stream),
            ("/perf_metrics", false) if self.arguments.has_perf_metrics() => {
                let entries = self.advanced().take_entries();
                reply(stream, &entries.iter().map(|entry| write::entry(entry, write::Version::V2)).collect())
            }
            _ => not_found(request, stream),
        }
    }

    /// Returns the true totals. Waits up to a second for answers that are being sent, because their records are not
    /// counted yet.
    fn truth(&self) -> Value {
        for _ in 0..100 {
            if self.live.lock().totals.open_answers == 0 {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.advanced().truth()
    }

    fn control(&self, request: &Request, stream: &mut TcpStream) -> Kept {
        let now = Instant::now();
        let invalid =
            |stream: &mut TcpStream, why: &str| answer(request, stream, 400, JSON, &json!({"detail": why}).to_string());
        let command: Command = match serde_json::from_slice(&request.body) {
            Ok(command) => command,
            Err(error) => return invalid(stream, &error.to_string()),
        };
        let changed = match command.engine.as_deref().map(|engine| self.arguments.simulated(engine)).transpose() {
            Ok(changed) => changed,
            Err(error) => return invalid(stream, &error),
        };
        let changes_engine = command.drain.is_some() || changed.is_some() || command.restart;
        if changes_engine && !self.live.lock().can_change() {
            return invalid(
                stream,
                "--disaggregated: the other processes of the deployment would not change; use stop or mode",
            );
        }
        if let Some(mode) = command.mode {
            *self.mode.lock() = mode;
        }
        let mut live = self.live.lock();
        if let Some(simulated) = changed {
            live.change(simulated, now);
        }
        if command.restart {
            live.restart(now);
        }
        if let Some(drain) = command.drain {
            live.drain(drain, now);
        }
        if let Some(stop) = command.stop {
            live.stop(stop, now);
        }
        drop(live);
        answer(request, stream, 200, JSON, &self.truth().to_string())
    }

    fn metrics(&self, frontend: usize, request: &Request, stream: &mut TcpStream) -> Kept {
        let mode = *self.mode.lock();
        match mode {
            Mode::Status500 => return answer(request, stream, 500, "text/plain", "Internal Server Error"),
            Mode::LauncherGone => {
                let error = "The launcher frontend that serves /metrics is unavailable: ConnectError('')";
                return answer(request, stream, 503, JSON, &json!({ "error": error }).to_string());
            }
            Mode::EngineGone => return answer(request, stream, 200, JSON, "[]"),
            Mode::Huge => return huge(stream).map(|()| false),
            Mode::Hang => {
                while *self.mode.lock() == Mode::Hang && !is_closed(stream)? {
                    thread::sleep(Duration::from_millis(50));
                }
                return Ok(false);
            }
            Mode::Ok | Mode::Truncated | Mode::Starting => {}
        }
        let records = self.advanced().take_records(frontend);
        let mut body = format!("[{}]", records.iter().map(|record| record.text.as_str()).collect::<Vec<_>>().join(","));
        let (sent, whole) = match mode {
            Mode::Truncated if !records.is_empty() => {
                let last = records.last().map_or(0, |record| record.text.len());
                body.truncate(body.len() - 1 - last.div_ceil(2));
                (answer(request, stream, 200, JSON, &body), Some(records.len() - 1))
            }
            _ => match answer(request, stream, 200, JSON, &body) {
                Ok(kept) => (Ok(kept), None),
                Err(error) => (Err(error), Some(0)),
            },
        };
        self.live.lock().totals.answered(&records, whole);
        sent
    }
}

fn huge(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(head(200, JSON, (100 << 20) + 4).as_bytes())?;
    stream.write_all(b"[\"")?;
    for _ in 0..1600 {
        stream.write_all(&[b'x'; 65536])?;
    }
    stream.write_all(b"\"]")
}

fn cluster() -> Value {
    let workers = json!([{"host": "worker", "port": 8001}]);
    json!({
        "current_workers": {"context_servers": workers, "generation_servers": workers},
        "minimal_instances": {"context_servers": 1, "generation_servers": 1},
    })
}

fn not_found(request: &Request, stream: &mut TcpStream) -> Kept {
    answer(request, stream, 404, JSON, r#"{"detail":"Not Found"}"#)
}
