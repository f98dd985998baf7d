//! Tests the program as a client: its paths, its commands, and what each release shows. The tests of the exporter compare
//! its counts with those of the exporter.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// A thousand iterations per second, with pauses.
const FAST: &str = "sim:?iter_base_ms=1&ctx_token_us=0&gen_request_us=0&rate=20&wave=0&output_mean=48&kv_blocks=2048";

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        Self::of(FAST, arguments)
    }

    fn of(engine: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trtllm-sim-serve"));
        let mut process = command.args([engine, "--port", "0"]).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, address: line.trim().strip_prefix("listening on ").unwrap().to_owned() }
    }

    /// Status and body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while reader.read_line(&mut head).unwrap() > 2 {}
        for line in head.lines() {
            length = line.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        (head[9..12].parse().unwrap(), String::from_utf8(body).unwrap())
    }

    fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.ask("GET", path, "").1).unwrap()
    }

    /// Returns the truth after the command.
    fn control(&self, command: &str) -> Value {
        serde_json::from_str(&self.ask("POST", "/control", command).1).unwrap()
    }

    fn until(&self, reached: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let truth = self.get("/truth");
            if reached(&truth) {
                return truth;
            }
            assert!(Instant::now() < deadline, "{truth}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn at_least(name: &'static str, number: u64) -> impl Fn(&Value) -> bool {
    move |truth| truth[name].as_u64() >= Some(number)
}

#[test]
fn an_engine_goes_on_with_another_load_and_crashes_on_request() {
    let server = Server::start(&[]);
    let before = server.until(at_least("iterations", 20));
    assert_eq!(server.ask("POST", "/control", r#"{"engine":"sim:?rate=fast"}"#).0, 400);
    // No request arrives any more, and the requests in the engine end.
    server.control(r#"{"engine":"sim:?rate=0"}"#);
    let idle = server.until(|truth| truth["active_requests"] == 0 && truth["queued_requests"] == 0);
    assert!(idle["iterations"].as_u64() > before["iterations"].as_u64(), "{idle}");
    server.control(r#"{"engine":"sim:?rate=100"}"#);
    let more = idle["iterations"].as_u64().unwrap() + 20;
    server.until(at_least("iterations", more));
    let highest =
        |records: &Value| records.as_array().unwrap().iter().filter_map(|record| record["iter"].as_u64()).max();
    let last = highest(&server.get("/metrics")).unwrap();
    server.control(r#"{"restart":true}"#);
    let truth = server.get("/truth");
    server.until(at_least("iterations", truth["iterations"].as_u64().unwrap() + 2));
    server.control(r#"{"stop":true}"#);
    let lowest = server.get("/metrics").as_array().unwrap().iter().filter_map(|record| record["iter"].as_u64()).min();
    assert!(lowest.unwrap() < 5 && last > 20, "numbers begin again: {lowest:?} after {last}");
}

#[test]
fn each_path_of_trtllm_serve_answers() {
    let directory = std::env::temp_dir().join(format!("sim-serve-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let server = Server::start(&["--prometheus", "--perf-metrics-dir", directory.to_str().unwrap()]);
    server.until(at_least("perf_metrics", 5));
    let truth = server.control(r#"{"stop":true}"#);
    let page = server.ask("GET", "/prometheus/metrics", "").1;
    assert!(
        page.contains("trtllm_e2e_request_latency_seconds_count{engine_type=\"pytorch\",model_name=\"simulated\"}")
    );
    assert_eq!(server.ask("GET", "/perf_metrics", "").0, 404, "the release with files has no such path");
    let file = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    assert_eq!(std::fs::read_to_string(file).unwrap().lines().count() as u64, truth["perf_metrics"]);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(server.get("/version")["version"], "1.4.0");
    assert_eq!(server.get("/v1/models")["data"][0]["id"], "simulated");
    assert!(server.get("/server_info")["startup_metrics"].is_object());
}

#[test]
fn the_driver_shows_the_gpu_of_each_stage_and_why_it_is_slow() {
    let server = Server::of("sim:?scenario=clocks-power", &[]);
    server.until(at_least("iterations", 20));
    let gpus = server.get("/gpus");
    let (gpu, others) = gpus.as_array().unwrap().split_first().unwrap();
    assert!(others.is_empty() && gpu["utilization_percent"].as_u64().unwrap() > 0, "{gpus}");
    assert_eq!(gpu["throttle_reasons"].as_u64().unwrap() == 4, gpu["field.74"].as_u64().unwrap() > 0, "{gpus}");
    let stages = Server::of("sim:?scenario=ranks-pipeline", &[]);
    stages.until(at_least("iterations", 20));
    let gpus = stages.get("/gpus");
    let watts: Vec<_> = gpus.as_array().unwrap().iter().map(|gpu| gpu["power_mw"].as_u64().unwrap()).collect();
    assert!(watts.len() > 1 && watts[1..].iter().all(|waiting| *waiting < watts[0]), "{gpus}");
}

/// The Unix time in seconds.
fn now() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string()
}

/// A series of the server's own page, found by the begin of its line.
fn series(server: &Server, begin: &str) -> Option<f64> {
    let page = server.ask("GET", "/prometheus/metrics", "").1;
    let line = page.lines().find(|line| line.starts_with(begin));
    line.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[test]
fn a_context_server_ends_its_requests_as_not_finished_since_1_3() {
    for (release, family, reason) in
        [("1.2", "request_success_total", "length"), ("1.3", "trtllm_request_success_total", "not_finished")]
    {
        let server = Server::of(&format!("{FAST}&disagg=context"), &["--prometheus", "--release", release]);
        let truth = server.until(at_least("perf_metrics", 5));
        let ended = series(&server, &format!("{family}{{finished_reason=\"{reason}\"")).unwrap();
        assert!(ended >= truth["perf_metrics"].as_f64().unwrap(), "{release}: {ended}");
    }
}

#[test]
fn the_three_servers_of_a_deployment_show_the_same_requests() {
    let start = now();
    let lines = std::env::temp_dir().join(format!("sim-serve-lines-{}", std::process::id()));
    std::fs::create_dir(&lines).unwrap();
    let directory = lines.to_str().unwrap();
    let server = |part: &'static str, more: &[&str]| {
        let arguments =
            ["--disaggregated", part, "--generation", "sim:?max_batch_size=8", "--start", &start, "--ring", "100000"];
        Server::of("sim:?rate=6&speed=5&nonstream=0.3", &[&arguments, more].concat())
    };
    let (context, generation) = (server("context", &[]), server("generation", &[]));
    let orchestrator = server("orchestrator", &["--perf-metrics-dir", directory]);
    let reached = |server: &Server, number| server.until(at_least("perf_metrics_served", number));
    reached(&orchestrator, 60);
    let file = std::fs::read_dir(&lines).unwrap().next().unwrap().unwrap();
    assert!(file.file_name().to_str().unwrap().starts_with("perf_metrics-disagg-"));
    let text = std::fs::read_to_string(file.path()).unwrap();
    let told: Vec<Value> = text.lines().take(60).map(|line| serde_json::from_str(line).unwrap()).collect();
    context.until(at_least("perf_metrics", 200));
    generation.until(at_least("perf_metrics", 80));
    for (server, part) in [(&context, "ctx_perf_metrics"), (&generation, "gen_perf_metrics")] {
        let entries = server.get("/perf_metrics");
        let entries = entries.as_array().unwrap();
        for line in &told {
            let id = &line[part]["disagg_request_id"];
            let entry = entries.iter().find(|entry| entry["disagg_request_id"] == *id);
            assert_eq!(entry, Some(&line[part]), "{part} {line}");
        }
    }
    let (mut whole, mut streamed) = (0, 0);
    for line in &told {
        let times = |part: &str| line[part]["perf_metrics"]["timing_metrics"].clone();
        let (context, generation) = (times("ctx_perf_metrics"), times("gen_perf_metrics"));
        assert_eq!(line["disagg_server_arrival_time"], context["server_arrival_time"]);
        assert!(generation["server_arrival_time"].as_f64() >= context["last_token_time"].as_f64());
        assert!(generation["first_scheduled_time"].as_f64() >= generation["kv_cache_transfer_end"].as_f64());
        let first = line["disagg_server_first_token_time"].as_f64();
        if first >= generation["last_token_time"].as_f64() {
            whole += 1;
        } else {
            // The generation server sends the token of the context server when it schedules the request.
            streamed += 1;
            assert_eq!(first, generation["first_scheduled_time"].as_f64());
        }
    }
    assert!(whole > 5 && streamed > 20, "{whole} {streamed}");
    std::fs::remove_dir_all(&lines).unwrap();
    assert_eq!(context.ask("POST", "/control", r#"{"restart":true}"#).0, 400);
    let answered = series(&orchestrator, "gen_completed_requests_total").unwrap();
    assert!(answered >= 60.0, "{answered}");
    let workers = &orchestrator.get("/cluster_info")["current_workers"];
    assert_eq!(workers["context_servers"].as_array().unwrap().len(), 1);
    assert_eq!(orchestrator.ask("GET", "/metrics", "").0, 404);
}
