//! Runs `crates/sim-serve`, a simulated trtllm-serve that also reports the true counts of what it sent (`/truth`).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tokio::net::TcpSocket;

use super::process::Process;
use super::{ensure, http, until};

/// Reserves a port for an engine that is killed and restarted. The returned socket is bound but does not listen, so the
/// system assigns the port to no other program.
pub(crate) fn reserved_port() -> (TcpSocket, u16) {
    let holder = TcpSocket::new_v4().expect("a socket");
    holder.set_reuseaddr(true).expect("SO_REUSEADDR");
    holder.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let port = holder.local_addr().expect("its address").port();
    (holder, port)
}

/// The path of the program, which is built once. The features are those of the whole workspace, so its dependencies are
/// those of the tests.
pub(crate) fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| super::built::built(&["--workspace", "--bin", "trtllm-sim-serve"], "trtllm-sim-serve"))
}

/// An engine with this many iterations per second. For ten seconds its load is higher than it can serve, so requests
/// wait; for the next ten seconds the load is lower.
pub(crate) fn steady(iterations: u32) -> String {
    engine(iterations, 0.28, 0.4)
}

/// An engine that has finished all its requests and is idle about every hundred iterations.
pub(crate) fn often_idle(iterations: u32) -> String {
    engine(iterations, 0.02, 0.0)
}

/// `load` is the number of requests per iteration.
fn engine(iterations: u32, load: f64, wave: f64) -> String {
    let (milliseconds, rate) = (1000.0 / f64::from(iterations), load * f64::from(iterations));
    format!(
        "sim:?iter_base_ms={milliseconds}&ctx_token_us=0&gen_request_us=0&jitter=0.1&max_batch_size=16&in_flight=40\
         &rate={rate}&wave={wave}&wave_period_s=20&prompt_mean=400&output_mean=48&kv_blocks=2048"
    )
}

/// A running look-alike.
#[derive(Debug)]
pub(crate) struct Lookalike {
    process: Process,
    port: u16,
}

impl Lookalike {
    pub(crate) fn start(engine: &str, arguments: &[&str]) -> Self {
        Self::start_on(0, engine, arguments)
    }

    /// Starts on a given port. See [`reserved_port`].
    pub(crate) fn start_on(port: u16, engine: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.args([engine, "--port", &port.to_string()]).args(arguments);
        let mut process = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let port = line.trim().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        Self { process, port: port.unwrap_or_else(|| panic!("the server did not start: {line:?}")) }
    }

    /// Starts an engine that stops after its first records, so that an exporter can connect before it has many.
    pub(crate) fn start_stopped(engine: &str, arguments: &[&str]) -> Self {
        let engine = Self::start(engine, arguments);
        until(|| ensure(engine.truth().count("records") > 0, || "no record".to_owned()));
        engine.stop();
        engine
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The value of `--source`.
    pub(crate) fn source(&self) -> String {
        format!("trtllm-serve:http://{}", self.address())
    }

    pub(crate) fn truth(&self) -> Truth {
        Truth(http::get(&self.address(), "/truth").json())
    }

    /// Sends `POST /control`. Returns `/truth` after the command.
    pub(crate) fn control(&self, command: &str) -> Truth {
        let response = http::request("POST", &self.address(), "/control", &[], command.as_bytes()).expect("a response");
        assert_eq!(response.status, 200, "{command}: {}", response.text());
        Truth(response.json())
    }

    pub(crate) fn stop(&self) -> Truth {
        self.control(r#"{"stop":true}"#)
    }

    pub(crate) fn resume(&self) {
        self.control(r#"{"stop":false}"#);
    }

    pub(crate) fn mode(&self, mode: &str) {
        self.control(&format!(r#"{{"mode":"{mode}"}}"#));
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("a running look-alike");
        self.process.wait().expect("its end");
    }
}

/// The JSON of `/truth`: what the engine emitted.
#[derive(Debug, Clone)]
pub(crate) struct Truth(pub(crate) Value);

impl Truth {
    /// The count under a key. `/` separates the levels of the key.
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.at(key).as_u64().unwrap_or_else(|| panic!("{key} is not a count: {}", self.0))
    }

    pub(crate) fn number(&self, key: &str) -> f64 {
        self.at(key).as_f64().unwrap_or_else(|| panic!("{key} is not a number: {}", self.0))
    }

    pub(crate) fn is(&self, key: &str) -> bool {
        self.at(key).as_bool().unwrap_or_else(|| panic!("{key} is not true or false: {}", self.0))
    }

    fn at(&self, key: &str) -> &Value {
        key.split('/').fold(&self.0, |value, key| &value[key])
    }
}
