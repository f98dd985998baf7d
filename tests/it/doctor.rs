//! `doctor` names the problem of each scenario, and reports nothing about engines that are healthy or idle. The
//! scenarios use simulated engines, publishers, a look-alike of trtllm-serve and a stand-in for NVML. These tests run
//! the whole exporter; crates/verdict/tests/situations tests in virtual time whether each verdict is right.

mod publishers;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use trtllm_doctor::diagnose::source_rules;
use trtllm_page::metrics::catalog::CATALOG;
use trtllm_verdict::findings;
use trtllm_verdict::findings::engine::{BENCHMARK_SHARE, FAILING_SHARE, SAME_LOAD};
use trtllm_verdict::findings::gpu::{CAPPED_SHARE, THROTTLED_SHARE};
use trtllm_verdict::findings::orchestrator::ORCHESTRATOR_ERRORS;
use trtllm_verdict::input::HURT_MISSED;

use crate::support;
use crate::support::daemon::{Daemon, Launch, doctor, doctor_prints, refused};
use crate::support::ensure;
use crate::support::ingest::Ingest;
use crate::support::lookalike::{Lookalike, often_idle, steady};
use crate::support::pki::{self, Pki};
use crate::support::served::Served;
use crate::support::standin::Standin;
use publishers::Publishers;

/// Simulated engines: the name, what limits the engine, and its source.
#[cfg(feature = "executor")]
const LIMITS: [(&str, &str, &str); 10] = [
    ("healthy", "none", "sim:?rate=4&prompt_mean=128&output_mean=96&prefix_share=1&prefix_tokens=100"),
    ("default", "none", "sim:"),
    ("idle", "none", "sim:?requests=1&output_mean=2"),
    ("starting", "unavailable", "sim:?load_seconds=600"),
    ("full-batch", "batch_limit", "sim:?rate=1000&in_flight=120&kv_blocks=6000"),
    ("full-cache", "kv_capacity", "sim:?rate=60&kv_blocks=120"),
    ("paused", "kv_capacity", "sim:?rate=60&kv_blocks=150&policy=max_utilization"),
    ("prompts", "context_work", "sim:?rate=30&ctx_token_us=80&prefix_share=0&output_mean=16&kv_blocks=4000"),
    ("static", "static_batching", "sim:?batching=static&rate=20&kv_blocks=4000"),
    ("drafts", "speculation", "sim:?spec_draft_len=4&spec_acceptance=0.1&rate=20&kv_blocks=4000"),
];

/// A report as JSON, with its exit code.
struct Report {
    json: Value,
    code: i32,
}

impl Report {
    fn of(daemon: &Daemon, arguments: &[&str]) -> Self {
        let url = daemon.url();
        let is_given = |option: &str| arguments.iter().any(|argument| argument.starts_with(option));
        let sources: &[&str] = if is_given("--source") { &[] } else { &["--no-sources"] };
        Self::run(&[&[url.as_str()], sources, arguments].concat())
    }

    fn run(arguments: &[&str]) -> Self {
        let output = doctor(&[&["diagnose", "--format", "json"], arguments].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let json = serde_json::from_str(&text);
        let json = json.unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
        Self { json, code: output.status.code().unwrap() }
    }

    /// The first report for which `is_complete` returns no error. The exporter judges its engines every five seconds.
    #[track_caller]
    fn until(daemon: &Daemon, is_complete: impl Fn(&Self) -> Result<(), String>) -> Self {
        support::until(|| {
            let report = Self::of(daemon, &[]);
            // Each report starts a process, so limit their rate.
            std::thread::sleep(Duration::from_millis(300));
            is_complete(&report).map(|()| report)
        })
    }

    #[track_caller]
    fn until_named(daemon: &Daemon, subject: &str, rule: &str) -> Self {
        Self::until(daemon, |report| {
            ensure(report.about(subject).contains(rule), || format!("no {rule}: {:#}", report.json["findings"]))
        })
    }

    #[track_caller]
    fn until_cause(daemon: &Daemon, model: &str, cause: &str) -> Self {
        Self::until(daemon, |report| {
            ensure(report.cause(model) == Some(cause), || format!("{model}: {:?}", report.verdict(model)))
        })
    }

    /// The rules that found something about this subject.
    fn about(&self, subject: &str) -> BTreeSet<&str> {
        let findings = self.json["findings"].as_array().unwrap().iter();
        let of_subject =
            findings.filter(|finding| finding["subject"].as_str().unwrap().split(' ').any(|word| word == subject));
        of_subject.map(|finding| finding["rule"].as_str().unwrap()).collect()
    }

    #[track_caller]
    fn names(&self, subject: &str, rule: &str) {
        assert!(self.about(subject).contains(rule), "{subject} has no {rule}: {:#}", self.json["findings"]);
    }

    fn verdict(&self, model: &str) -> &Value {
        let exporters = self.json["exporters"].as_array().unwrap().iter();
        let mut engines = exporters.flat_map(|exporter| exporter["engines"].as_array().unwrap());
        engines.find(|engine| engine["model"] == model).map_or(&Value::Null, |engine| &engine["verdict"])
    }

    /// What limits the engine of this model, if its exporter has judged it.
    fn cause(&self, model: &str) -> Option<&str> {
        self.verdict(model)["cause"].as_str()
    }

    /// Fails if there is a finding about the subject, and also if the subject was never monitored.
    #[track_caller]
    fn is_silent_about(&self, subject: &str) {
        let exporters = self.json["exporters"].as_array().unwrap();
        let list = |list: &Value| list.as_array().unwrap().clone();
        let models =
            exporters.iter().flat_map(|exporter| list(&exporter["engines"])).map(|engine| engine["model"].clone());
        let gpus = exporters.iter().flat_map(|exporter| list(&exporter["gpus"]));
        let urls = exporters.iter().map(|exporter| exporter["url"].clone());
        let mut watched = models.chain(gpus).chain(urls).chain(list(&self.json["sources"]));
        assert!(watched.any(|watched| watched == subject), "{subject} was not watched: {:#}", self.json);
        assert_eq!(self.about(subject), BTreeSet::new(), "{:#}", self.json["findings"]);
    }
}

/// The entries of a configuration with these engines: model and source.
fn engines(engines: &[(&str, String)]) -> String {
    engines.iter().map(|(model, source)| format!("- {{source: \"{source}\", model: {model}}}\n")).collect()
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

#[cfg(feature = "executor")]
#[test]
fn the_limit_of_each_simulated_engine_is_named() {
    let daemon = Daemon::configured(&engines(&LIMITS.map(|(model, _, source)| (model, source.to_owned()))), &[]);
    // The exporter knows the costs of an engine after some dozens of iterations. A slow engine needs longer for them.
    let report = Report::until(&daemon, |report| {
        let wrong = LIMITS.iter().filter(|(model, cause, _)| report.cause(model) != Some(cause));
        let wrong: Vec<_> = wrong.map(|(model, ..)| format!("{model}: {}", report.verdict(model))).collect();
        ensure(wrong.is_empty(), || wrong.join("\n"))
    });
    for model in ["healthy", "default", "idle"] {
        report.is_silent_about(model);
    }
    assert_eq!(report.code, 3, "a warning is the worst");
    let text = doctor_prints(&["diagnose", &daemon.address, "--no-sources"]);
    assert!(text.contains(": engine full-batch 1\n  The batch is full"), "{text}");
    assert!(text.contains("\n  Change: Raise max_batch_size"), "{text}");
    assert!(text.contains("engine idle 1: idle, nothing found\n"), "{text}");
}

#[test]
fn engines_have_no_finding_while_the_exporter_starts() {
    let (pytorch, tensorrt) =
        (Lookalike::start(&often_idle(50), &[]), Lookalike::start(&often_idle(50), &["--backend", "tensorrt"]));
    let daemon = Daemon::configured(&engines(&[("pytorch", pytorch.source()), ("tensorrt", tensorrt.source())]), &[]);
    for _ in 0..8 {
        let report = Report::of(&daemon, &[]);
        assert_eq!(report.json["findings"], serde_json::json!([]));
        let causes = ["pytorch", "tensorrt"].map(|model| report.cause(model));
        assert!(!causes.contains(&Some("unavailable")), "{causes:?}");
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn what_a_publishers_statistics_lack_is_named() {
    let mut publishers = Publishers::new();
    let names = ["healthy", "statistics-sampled", "request-latencies-missing", "records-rejected", "speculation-pays"];
    for name in names.into_iter().chain(["engine-restarted", "statistics-off", "host-bound", "kv-transfer-slow"]) {
        publishers.add(name);
    }
    publishers.start();
    publishers.daemon.until_at_least("nv_trt_llm_requests_completed_total", &["model=healthy"], 30.0);
    let report = Report::until(&publishers.daemon, |report| {
        let missing = names.iter().filter(|name| !matches!(**name, "healthy" | "speculation-pays"));
        let missing: Vec<_> = missing.filter(|name| !report.about(name).contains(*name)).collect();
        let causes = [("statistics-off", "statistics"), ("host-bound", "host"), ("kv-transfer-slow", "transfer")];
        let wrong: Vec<_> = causes.iter().filter(|(name, cause)| report.cause(name) != Some(cause)).collect();
        let is_judged = ["healthy", "speculation-pays"].iter().all(|name| report.verdict(name).is_object());
        ensure(missing.is_empty() && wrong.is_empty() && is_judged, || {
            format!("{missing:?}, {wrong:?}: {:#}", report.json)
        })
    });
    for name in ["healthy", "speculation-pays"] {
        report.is_silent_about(name);
        let severity = report.verdict(name)["severity"].as_str();
        assert!(matches!(severity, Some("none" | "info")), "{:#}", report.verdict(name));
    }
    publishers.restart("engine-restarted");
    Report::until_named(&publishers.daemon, "engine-restarted", "engine-restarted");
    // The engines have active requests, but their publishers send no more records.
    publishers.stop();
    let report = Report::until_cause(&publishers.daemon, "healthy", "unavailable");
    let verdict = report.verdict("healthy");
    assert_eq!((report.code, &verdict["severity"]), (4, &serde_json::json!("critical")));
    assert_eq!(verdict["says"], "Requests are active, and the engine runs no batch.");
}

#[test]
fn a_second_reader_is_told_from_a_ring_that_overflows() {
    let (shared, small, healthy) = (
        Lookalike::start(&steady(200), &[]),
        Lookalike::start(&steady(200), &["--ring", "40"]),
        Lookalike::start(&often_idle(100), &[]),
    );
    let all = engines(&[("shared", shared.source()), ("small", small.source()), ("healthy", healthy.source())]);
    let daemon = Daemon::configured(&all, &["--poll.interval", "400ms", "--stale-after", "2s"]);
    for model in ["model=shared", "model=small", "model=healthy"] {
        daemon.until_state(&[model], "busy");
    }
    let address = shared.address();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thief = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(150)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            support::http::get(&address, "/metrics");
        }
    });
    let says = |report: &Report, model: &str| match report.cause(model) {
        Some("statistics") => report.verdict(model)["says"].to_string(),
        _ => {
            let findings = report.json["findings"].as_array().unwrap().iter();
            let mut found = findings.filter(|one| one["rule"] == "statistics-incomplete");
            let found = found.find(|one| one["subject"].as_str().unwrap().starts_with(model));
            found.map_or(String::new(), |found| found["says"].to_string())
        }
    };
    let report = Report::until(&daemon, |report| {
        let found = [says(report, "shared"), says(report, "small")];
        ensure(found.iter().all(|text| !text.is_empty()), || format!("{found:?}: {:#}", report.json))
    });
    drop(stop);
    thief.join().unwrap();
    assert!(says(&report, "shared").contains("another program takes them"), "{}", says(&report, "shared"));
    assert!(says(&report, "small").contains("the engine drops them"), "{}", says(&report, "small"));
    report.is_silent_about("healthy");
    // At first every second poll fails. Later every poll fails.
    let mut small = small;
    Report::until(&daemon, |report| {
        for mode in ["500", "ok"] {
            small.mode(mode);
            std::thread::sleep(Duration::from_millis(500));
        }
        ensure(report.about("small").contains("source-failing"), || format!("{:#}", report.json["findings"]))
    });
    small.kill();
    Report::until_cause(&daemon, "small", "unavailable");
}

#[test]
fn gpus_that_are_lost_throttled_or_absent_are_named() {
    let states =
        ["gpus=4\ngpu.1.throttle_reasons=64", "gpus=4\ngpu.1.throttle_reasons=64\ngpu.2.lost=1\ngpu.0.xids=79"];
    let gpus = Standin::new(states[0]);
    let daemon = Launch::new().gpus(&gpus).start(&[]);
    let up = |page: &support::page::Page| {
        page.series.iter().filter(|(series, value)| series.starts_with("nv_gpu_up") && *value == 1.0).count()
    };
    daemon.until(|page| ensure(up(page) == 4, || format!("{} GPUs", up(page))));
    // Wait, because errors from before the exporter's start are not reported as new.
    std::thread::sleep(Duration::from_secs(6));
    gpus.set(states[1]);
    let wanted = [("0", "gpu-errors"), ("1", "gpu-throttled"), ("2", "gpu-lost")];
    let report = Report::until(&daemon, |report| {
        let missing: Vec<_> = wanted.iter().filter(|(index, rule)| !report.about(index).contains(rule)).collect();
        ensure(missing.is_empty(), || format!("{missing:?}: {:#}", report.json["findings"]))
    });
    report.is_silent_about("GPU-00000000-0000-4000-8000-000000000003");
    assert_eq!(report.code, 4);
    // While monitoring is paused, no problem is reported. When it resumes, the driver finds one GPU less.
    daemon.signal("USR1");
    daemon.until(|page| ensure(up(page) == 0, || "monitoring continues".to_owned()));
    Report::until(&daemon, |report| ensure(report.code == 0, || format!("{:#}", report.json["findings"])));
    gpus.set("gpus=3");
    daemon.signal("USR2");
    daemon.until(|page| ensure(up(page) == 3, || format!("{} GPUs", up(page))));
    let report = Report::until_named(&daemon, &daemon.url(), "gpu-absent");
    assert_eq!(report.code, 4);
}

#[test]
fn a_source_is_asked_which_option_is_off_and_none_of_its_records_are_consumed() {
    let off = Served::start(&[
        ("/version", 200, r#"{"version":"1.3.0"}"#),
        ("/health", 503, "LLM is unavailable"),
        (
            "/prometheus/metrics",
            200,
            "trtllm_model_config_info{model=\"m\"} 1\ntrtllm_request_success_total{finished_reason=\"stop\"} 7\n\
            trtllm_kv_cache_config_info{enable_block_reuse=\"False\"} 1\n",
        ),
    ]);
    let without = Served::start(&[("/version", 200, r#"{"version":"1.2.0"}"#), ("/health", 200, "")]);
    let tokenless = Served::start(&[("/version", 200, r#"{"version":"1.3.0"}"#)]);
    let (other, closed) = (Served::start(&[("/", 200, "hello")]), Served::start(&[("/version", 401, "")]));
    let sources = [
        off.source(),
        without.source(),
        other.source(),
        closed.source(),
        format!("{}?bearer_token_file=/nonexistent/token", tokenless.source()),
        "trtllm-serve:http://127.0.0.1:1".to_owned(),
        "socket:/nonexistent/ingest.sock".to_owned(),
        "socket:/nonexistent/a space".to_owned(),
    ];
    let daemon = Daemon::start(&[]);
    let arguments: Vec<String> = sources.iter().map(|source| format!("--source={source}")).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let report = Report::of(&daemon, &arguments);
    for rule in ["source-unhealthy", "iteration-statistics-off", "block-reuse-off"] {
        report.names(&off.target(), rule);
    }
    report.names(&without.target(), "perf-metrics-off");
    report.names(&other.target(), "source-other");
    report.names(&closed.target(), "source-refused");
    report.names("http://127.0.0.1:1", "source-unanswered");
    report.names(&tokenless.target(), "source-not-asked");
    report.names("socket:/nonexistent/ingest.sock", "socket-missing");
    let asked: Vec<&str> = report.json["sources"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(asked.len() == sources.len() && asked.contains(&"socket:/nonexistent/a space"), "{asked:?}");
    assert_eq!(tokenless.asked(), [""; 0]);
    for server in [&off, &without, &other, &closed] {
        for asked in server.asked() {
            assert!(["GET /version", "GET /health", "GET /prometheus/metrics"].contains(&asked.as_str()), "{asked}");
        }
    }
}

#[test]
fn a_page_for_prometheus_in_place_of_the_statistics_is_named_at_once() {
    let worker = Served::start(&[("/metrics", 200, "# HELP dynamo_component_requests_total Requests\n")]);
    let daemon = Daemon::start(&["--source", &worker.source()]);
    let report = Report::until_cause(&daemon, "tensorrt_llm", "unavailable");
    let verdict = report.verdict("tensorrt_llm");
    assert_eq!(verdict["severity"], "warning");
    assert!(verdict["says"].as_str().unwrap().starts_with("The address answers, but not with statistics"), "{verdict}");
    assert!(verdict["remedy"].as_str().unwrap().contains("--source socket:PATH"), "{verdict}");
    let log = daemon.stderr();
    assert!(log.contains("/metrics is a page for Prometheus, not the statistics of trtllm-serve"), "{log}");
}

#[test]
fn the_variable_for_sources_holds_several() {
    let daemon = Daemon::start(&[]);
    let launch = Launch::doctor().variable("TRTLLM_EXPORTER_SOURCE", "socket:/nonexistent/a\n socket:/nonexistent/b ");
    let output = launch.run(&["diagnose", &daemon.address, "--format", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["sources"], serde_json::json!(["socket:/nonexistent/a", "socket:/nonexistent/b"]));
}

#[test]
fn an_exporter_that_cannot_be_read_is_named_beside_one_that_can() {
    let daemon = Daemon::start(&[]);
    let url = daemon.url();
    let report = Report::run(&[&url, "http://127.0.0.1:1", "--no-sources"]);
    report.names("http://127.0.0.1:1", "exporter-unreadable");
    report.is_silent_about(&url);
    assert_eq!(report.code, 4);
}

#[test]
fn a_password_and_a_certificate_authority_open_a_closed_exporter() {
    let pki = Pki::new();
    let daemon = pki.serve(&format!("{}{}", pki::TLS, pki::users()));
    let url = format!("https://{}", daemon.address);
    let (ca, user) = (pki.path("ca.pem"), pki.write("user", "ann:open sesame\n"));
    let report = Report::run(&[&url, "--no-sources", "--ca-file", &ca, "--user-file", &user]);
    assert_eq!((report.code, report.json["exporters"][0]["engines"].as_array().unwrap().len()), (0, 1));
    let wrong = pki.write("wrong", "ann:close sesame");
    for arguments in [&["--ca-file", &ca][..], &["--ca-file", &ca, "--user-file", &wrong], &["--user-file", &user]] {
        let report = Report::run(&[&[url.as_str(), "--no-sources"], arguments].concat());
        report.names(&url, "exporter-unreadable");
    }
}

#[test]
fn a_bundle_has_no_secret_no_name_and_no_address() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let socket = Ingest::new();
    let engines = "- source: 'SOURCE'\n  model: acme-secret-model.corp.example\n  labels: {node: gpu-node-17.corp.example, rack: 192.0.2.44, note: 'fd00::77', link: acme-link, architecture: acme-arch, index: acme-i, fan: acme-fan, xid: acme-x, mig_profile: acme-mig, acme_team: red}\n";
    std::fs::write(file("token"), "hunter2-token").unwrap();
    let gpus = Standin::new("gpus=1\ngpu.0.uuid=GPU-5ec7e7\ngpu.0.serial=4242424242");
    let daemon = Launch::new().config(&engines.replace("SOURCE", &socket.source())).gpus(&gpus).start(&[]);
    publishers::send_some(&socket);
    daemon.until_at_least("nv_trt_llm_iterations_total", &[], 10.0);
    daemon.until_is("nv_gpu_up", &[], 1.0);
    let served = Served::start(&[
        ("/version", 200, r#"{"version":"10.0.0.7"}"#),
        ("/health", 200, ""),
        (
            "/prometheus/metrics",
            200,
            "trtllm_model_config_info{model=\"/models/acme-weights\",served_model_name=\"acme\"} 1\nacme_requests_total 5\n",
        ),
    ]);
    let (bundle, token) = (file("bundle.json"), file("token"));
    let source = format!("{}?bearer_token_file={}", served.source(), path(&token));
    let bundle_to = ["--bearer-token-file", path(&token), "--bundle", path(&bundle), "--source", &source];
    let url = format!("http://localhost:{}", daemon.address.rsplit(':').next().unwrap());
    Report::run(&[&[url.as_str()], &bundle_to[..]].concat());
    let text = std::fs::read_to_string(&bundle).unwrap();
    let port = served.target();
    let port = port.rsplit(':').next().unwrap();
    for secret in [
        "acme",
        "corp.example",
        "192.0.2",
        "fd00",
        "hunter2",
        "127.0.0.1",
        "localhost",
        "10.0.0.7",
        "5ec7e7",
        "4242424242",
        path(folder.path()),
        path(socket.path().parent().unwrap()),
        port,
        "gpu-node",
    ] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    for needed in [
        "nv_trt_llm_iterations_total{label-",
        "model=model-1",
        "\"records\"",
        "iterLatencyMS",
        "nv_gpu_up{gpu_uuid=gpu_uuid-1}",
        "\"slots\"",
        "kv_cache_block_type=free",
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(text.contains(needed), "{needed}: {text}");
    }
    let _: Value = serde_json::from_str(&text).unwrap();
}

/// `doctor` shows the name. Its control characters have no effect on the terminal, and it cannot start a new line.
#[test]
fn control_characters_in_the_name_of_an_engine_reach_no_terminal() {
    let name = "m\u{1b}[2J\u{7}\r\nNo problem found.\u{9b}31m\u{7f}\u{202e}";
    let mut publishers = Publishers::new();
    publishers.add(name);
    publishers.start();
    // The engine appears once its publisher has connected.
    publishers.daemon.until_shown("nv_trt_llm_iterations_total", &[], true);
    let url = publishers.daemon.url();
    let is_printable =
        |text: &str| !text.chars().any(|letter| (letter.is_control() && letter != '\n') || letter == '\u{202e}');
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let watch = ["diagnose", &url, "--no-sources", "--bundle", bundle.to_str().unwrap()];
    let text = doctor_prints(&watch);
    assert!(is_printable(&text) && text.contains("m?[2J???No problem found.?31m??"), "{text:?}");
    assert!(is_printable(&std::fs::read_to_string(&bundle).unwrap()));
    let json = doctor_prints(&[&watch[..], &["--format", "json"]].concat());
    assert!(is_printable(&json), "{json:?}");
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["exporters"][0]["engines"][0]["model"], name);
    assert!(is_printable(&doctor_prints(&["top", "--once", &url])));
    publishers.stop();
}

#[test]
fn a_wrong_option_is_named_with_its_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let [file, missing, empty] = ["user", "missing", "empty"].map(|name| folder.path().join(name));
    std::fs::write(&file, "no colon").unwrap();
    std::fs::write(&empty, "\n").unwrap();
    for (arguments, words) in [
        (&["--user-file", path(&file)][..], "USER:PASSWORD"),
        (&["--user-file", path(&missing)], "cannot read the file"),
        (&["https://x", "--ca-file", path(&missing)], "--ca-file"),
        (&["--bearer-token-file", path(&missing)], "cannot read the token"),
        (&["--bearer-token-file", path(&empty)], "does not contain a token"),
    ] {
        refused(2, &[&["trtllm-doctor", "diagnose"], arguments].concat(), &[words]);
    }
}

/// `api_golden` has an exporter of a later version.
#[test]
fn an_exporter_of_an_old_version_and_another_program_are_told_from_one_that_works() {
    let older = Served::start(&[("/api/v1/engines", 200, "[]")]);
    let other = Served::start(&[
        ("/api/v1/engines", 200, "hello"),
        ("/api/v1/findings", 200, r#"{"apiVersion":1,"findings":[]}"#),
    ]);
    for (served, words) in [
        (older, "/api/v1/findings is missing"),
        (other, "/api/v1/engines is not JSON: this is not a trtllm-exporter; check the URL"),
    ] {
        let report = Report::run(&[&served.target(), "--no-sources"]);
        report.names(&served.target(), "exporter-unreadable");
        let says = report.json["findings"][0]["says"].as_str().unwrap();
        assert!(says.contains(words) && report.code == 4, "{says}");
    }
}

/// Each limit, the rules whose text states it, and the alerts and recording rules that compare with it or record it. If a
/// limit changes, this test fails until all of them have the new value, and tests/judges/alerts.py fails until the
/// runbooks have it.
const SHARED: &[(f64, &[&str], &[&str])] = &[
    (BENCHMARK_SHARE, &["below-benchmark"], &["TrtllmBelowBenchmark"]),
    (SAME_LOAD, &["below-benchmark"], &[]),
    (1.0 - SAME_LOAD, &[], &["TrtllmBelowBenchmark"]),
    (1.0 + SAME_LOAD, &[], &["TrtllmBelowBenchmark"]),
    (FAILING_SHARE, &["source-failing"], &[]),
    (THROTTLED_SHARE, &["gpu-throttled"], &[]),
    (CAPPED_SHARE, &["gpu-power-capped"], &[]),
    (HURT_MISSED, &[], &["trtllm_slo:objective_budget:ratio"]),
    (
        ORCHESTRATOR_ERRORS,
        &["orchestrator-errors", "orchestrator-retries"],
        &["TrtllmDisaggRequestsFailing", "TrtllmDisaggRetries"],
    ),
];

#[test]
fn rules_and_alerts_state_the_limits_that_they_share() {
    let read = |path: &str| std::fs::read_to_string(support::root().join(path)).unwrap();
    let queries = read("deploy/prometheus/alerts.yml") + &read("deploy/prometheus/recording.yml");
    for (value, names, compared_by) in SHARED {
        let words = percent(*value);
        for name in *names {
            let rule = trtllm_verdict::findings::rules().find(|rule| rule.name == *name).unwrap();
            assert!(rule.when().contains(&words), "{name} does not state {words}: {}", rule.when());
        }
        for name in *compared_by {
            let place = |key: &str| Some(queries.split_once(&format!("- {key}: {name}\n"))?.1);
            let expression = place("alert").or_else(|| place("record")).unwrap();
            let expression = expression.split("labels:").next().unwrap().split("- record:").next().unwrap();
            let has_value = |word: &str| word.parse() == Ok(*value);
            let compares = expression.split(|c: char| c.is_whitespace() || "()".contains(c)).any(has_value);
            assert!(compares, "{name} does not compare with {value}: {expression}");
        }
    }
}

/// These documents explain what the limit means, so they repeat it.
#[test]
fn documents_state_the_share_of_requests_that_may_miss_an_objective() {
    let (missed, met) = (percent(HURT_MISSED), percent(1.0 - HURT_MISSED));
    for (path, sentence) in [
        ("docs/verdict.md", format!("{missed} of the requests miss an objective")),
        ("docs/monitoring.md", format!("{met} of the requests must keep each limit")),
        ("docs/runbooks/objectives.md", format!("{met} of the requests must meet the objective. The other {missed}")),
    ] {
        let text = std::fs::read_to_string(support::root().join(path)).unwrap();
        assert!(text.contains(&sentence), "{path} does not state: {sentence}");
    }
}

fn percent(share: f64) -> String {
    format!("{} %", f64::round(share * 100.0))
}

/// Texts of findings, the query of the fleet and the help of flags are code that spells names of families without the
/// catalog. A name that ends with `_` stands for all families that begin with it.
#[test]
fn findings_queries_and_flags_name_only_families_of_the_catalog() {
    let folders = ["crates/verdict/src", "crates/verdict/src/findings", "crates/verdict/src/rules"];
    let folders = folders.map(|folder| std::fs::read_dir(support::root().join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let others =
        ["crates/doctor/src/diagnose/fleet.rs", "crates/doctor/src/diagnose/source_rules.md", "src/cli/flags.rs"];
    let others = others.map(|path| support::root().join(path));
    let mut named = BTreeSet::new();
    for file in files.filter(|path| path.is_file()).chain(others) {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if word.starts_with("nv_") || word.starts_with("trtllm_exporter_") {
                let is_named = |name: &str| name == word || word.ends_with('_') && name.starts_with(word);
                let exists = CATALOG.iter().any(|metric| is_named(metric.name));
                assert!(exists, "{} names {word}, which the catalog does not have", file.display());
                named.insert(word.to_owned());
            }
        }
    }
    for name in ["nv_trt_llm_limited_by", "nv_gpu_up", "trtllm_exporter_nvml_state", "nv_trt_llm_gpu_cost_total"] {
        assert!(named.contains(name), "the search for names does not find {name}");
    }
}

#[test]
fn the_program_prints_every_rule_with_its_condition_and_remedy() {
    let printed = doctor_prints(&["diagnose", "--rules"]);
    let rules: Vec<_> = findings::rules().chain(source_rules::RULES.iter().copied()).collect();
    assert!(rules.len() > 30, "{}", rules.len());
    for rule in rules {
        for text in [&format!("### {}\n", rule.name), rule.says(), rule.when(), rule.remedy()] {
            assert!(printed.contains(text), "{}: {text} is missing", rule.name);
        }
    }
}
