//! A disaggregated deployment of three simulated servers that show the same requests, and what the real daemon tells at the door
//! of each server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::ensure;
use crate::support::lookalike::{self, Lookalike};
use crate::support::page::Page;

/// The daemon reads each server, and the files of the orchestrator.
const DOORS: [&str; 4] = ["context", "generation", "orchestrator", "lines"];

struct Deployment {
    name: &'static str,
    servers: Vec<Lookalike>,
    lines: tempfile::TempDir,
}

impl Deployment {
    /// `generation` has the options in which the generation server differs.
    fn start(name: &'static str, generation: &str, start: &str) -> Self {
        // At a higher speed, the times in records would disagree with the clock, and the verdict with both.
        let options = "sim:?rate=6&wave=0&kv_blocks=4096&prompt_mean=500&output_mean=100";
        let generation = format!("{options}{generation}");
        let lines = tempfile::tempdir().unwrap();
        let server = |part: &str| {
            let mut arguments = vec!["--disaggregated", part, "--generation", &generation, "--start", start];
            match part {
                "orchestrator" => arguments.extend(["--perf-metrics-dir", lines.path().to_str().unwrap()]),
                _ => arguments.push("--prometheus"),
            }
            Lookalike::start(options, &arguments)
        };
        let servers = DOORS[..3].iter().map(|part| server(part)).collect();
        Self { name, servers, lines }
    }

    /// Its sources as a configuration file lists them. The model is the deployment and the door.
    fn engines(&self) -> String {
        let mut engines = String::new();
        for (index, door) in DOORS.iter().enumerate() {
            let source = match *door {
                "lines" => format!("perf-metrics:{}", self.lines.path().display()),
                "orchestrator" => format!("trtllm-disagg:http://{}", self.servers[index].address()),
                _ => self.servers[index].source(),
            };
            let _ = writeln!(engines, "  - {{source: \"{source}\", model: {}-{door}}}", self.name);
        }
        engines
    }
}

/// How often each cause was told for each model, and the last text of each.
type Told = BTreeMap<String, BTreeMap<String, (usize, String)>>;

fn note(told: &mut Told, engines: &Value) {
    for engine in engines.as_array().unwrap() {
        let verdict = &engine["verdict"];
        let cause = verdict["cause"].as_str().unwrap_or("no verdict").to_owned();
        let model = told.entry(engine["model"].as_str().unwrap().to_owned()).or_default();
        let (times, says) = model.entry(cause).or_default();
        *times += 1;
        *says = verdict["says"].as_str().unwrap_or_default().to_owned();
    }
}

#[test]
fn each_door_of_a_deployment_tells_the_same_story() {
    // Builds the program first. The requests begin when the daemon reads all servers, so that it misses no records.
    lookalike::program();
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 5;
    let start = start.to_string();
    let deployments = [
        Deployment::start("healthy", "", &start),
        // The generation server serves 5 of 6 requests.
        Deployment::start("full", "&max_batch_size=4", &start),
        // 66 MB of KV cache of a mean prompt take 130 ms of a link that transfers one request at a time.
        Deployment::start("slow", "&transfer_gbps=4", &start),
    ];
    let engines: String = deployments.iter().map(Deployment::engines).collect();
    let daemon = Daemon::configured(&engines, &[]);
    let mut told = Told::new();
    let observed = |page: &Page, model: &str| {
        page.find("nv_trt_llm_e2e_request_latency_seconds_count", &[&format!("model={model}")]).unwrap_or_default()
    };
    let page = daemon.until(|page| {
        note(&mut told, &daemon.get("/api/v1/engines").json());
        let observed = observed(page, "healthy-lines");
        ensure(observed >= 400.0, || format!("{observed} requests of the healthy deployment"))
    });
    let mut text = String::new();
    for (model, causes) in &told {
        for (cause, (times, says)) in causes {
            let _ = writeln!(text, "{model}: {cause} ({times} times): {says}");
        }
    }
    println!("{text}");
    for deployment in &deployments {
        let name = deployment.name;
        let sent = |side: &str| {
            let labels = [&*format!("model={name}-orchestrator"), side];
            page.find("nv_trt_llm_disagg_worker_requests_total", &labels).unwrap_or_default()
        };
        let (context, generation) = (sent("side=context"), sent("side=generation"));
        let answered = observed(&page, &format!("{name}-lines"));
        // The exporter begins to count at its first reading.
        assert!(context > 100.0 && (context - generation).abs() < 20.0, "{name}: {context} {generation}");
        assert!(answered > 100.0 && answered < generation + 60.0, "{name}: {answered} {generation}");
        assert_eq!(told[&format!("{name}-context")].keys().filter(|cause| is_limit(cause)).count(), 0, "{text}");
    }
    for (model, causes) in &told {
        assert!(!causes.contains_key("errors") && !causes.contains_key("unavailable"), "{model}: {text}");
    }
    // The lines do not tell whether a request waits for the batch or for the link.
    for (model, cause) in [
        ("healthy-context", "none"),
        ("healthy-generation", "none"),
        ("healthy-lines", "none"),
        ("full-context", "none"),
        ("full-generation", "batch_limit"),
        ("full-lines", "generation_queue"),
        ("slow-context", "none"),
        ("slow-generation", "transfer"),
        ("slow-lines", "generation_queue"),
    ] {
        let causes = &told[model];
        let last =
            causes.iter().filter(|(cause, _)| is_limit(cause)).map(|(cause, _)| cause.as_str()).collect::<Vec<_>>();
        let expected: &[&str] = if cause == "none" { &[] } else { &[cause] };
        assert!(last == expected && causes.contains_key(cause), "{model}: {text}");
    }
}

fn is_limit(cause: &str) -> bool {
    !["none", "no verdict"].contains(&cause)
}
