//! `--dry-run` and `check-config FILE` print what a start would use, after the same checks as a start. They open nothing for
//! writing and ask no server.

use std::fmt::Write as _;
use std::path::Path;

use crate::cli::Cli;
use trtllm_config::{EngineConfig, SourceSpec};
#[cfg(feature = "executor")]
use trtllm_sources::executor;
use trtllm_sources::otlp::SpanReceiver;
use trtllm_sources::server::Access;
use trtllm_sources::trtllm_serve::Extras;

use super::unjudged;
use trtllm_config::command_line::print;

/// Prints the sources, the listen addresses and the files.
pub fn run(cli: &Cli, engines: &[EngineConfig]) {
    print(&report(cli, engines));
}

/// Prints one line per engine of a valid file, and one per objective that its source can never judge.
pub fn check_config(path: &Path, engines: &[EngineConfig]) {
    for engine in engines {
        print(&format!("{} {}\n{}", engine.name.source, names(engine), unjudged(engine)));
    }
    print(&format!("{}: ok, {} engine(s)\n", path.display(), engines.len()));
}

fn unjudged(engine: &EngineConfig) -> String {
    unjudged::warnings(engine).iter().map(|why| format!("  warning: {why}\n")).collect()
}

fn report(cli: &Cli, engines: &[EngineConfig]) -> String {
    let mut text = "sources:\n".to_owned();
    for engine in engines {
        let _ = write!(text, "  {}, from {}\n{}", names(engine), address(&engine.source), unjudged(engine));
    }
    text += "listen addresses:\n";
    if cli.systemd_socket {
        text += "  the sockets that systemd passes: the metrics, at ";
        let _ = writeln!(text, "{}", cli.telemetry_path);
    }
    for address in cli.listen_address.iter().filter(|_| !cli.systemd_socket) {
        let _ = writeln!(text, "  {address}: the metrics, at {}", cli.telemetry_path);
    }
    for address in cli.health_addresses().unwrap_or_default() {
        let _ = writeln!(text, "  {address}: health checks");
    }
    let mut files = Vec::new();
    let mut file = |does: &str, path: &Path, flag: &str| files.push(format!("  {does} {} ({flag})", path.display()));
    let flags = [
        ("reads", &cli.config_file, "--config.file"),
        ("reads", &cli.web_config_file, "--web.config.file"),
        ("reads", &cli.bench_report, "--bench-report"),
        ("loads", &cli.gpu_library, "--gpu.library"),
        ("writes", &cli.port_file, "--web.port-file"),
        ("writes below", &cli.record_dir, "--record.dir"),
    ];
    for (does, path, flag) in flags {
        path.iter().for_each(|path| file(does, path, flag));
    }
    engines.iter().for_each(|engine| files_of(&engine.source, &mut file));
    text += "files:\n";
    files.iter().for_each(|file| text += &format!("{file}\n"));
    if files.is_empty() {
        text += "  none\n";
    }
    let _ = writeln!(text, "GPU metrics: {}", cli.gpu.name());
    text
}

/// The labels and objectives of an engine, and whether it is simulated.
fn names(engine: &EngineConfig) -> String {
    let name = &engine.name;
    let mut text = match engine.names_its_engines {
        true => "each engine that is found, under its own name".to_owned(),
        false => format!("{:?} version {:?}", name.model, name.version),
    };
    for (label, value) in &name.labels {
        let _ = write!(text, " {label}={value:?}");
    }
    if name.objectives.any() {
        let _ = write!(text, " objectives {}", name.objectives);
    }
    #[cfg(feature = "executor")]
    if matches!(engine.source, SourceSpec::Executor(_)) && executor::is_simulated() {
        text += " (simulated: this build has no TensorRT-LLM, build it with TENSORRT_LLM_ROOT)";
    }
    text
}

fn address(source: &SourceSpec) -> String {
    match source {
        SourceSpec::Simulated(engine) => engine.clone(),
        SourceSpec::Executor(hosting) => format!("executor:{}", hosting.engine),
        SourceSpec::TrtllmServe { access, extras: Extras { otlp: Some(spans), .. } } => {
            format!("{}:{}, its spans at {}", source.kind(), access.target, receiving(spans))
        }
        SourceSpec::TrtllmServe { access, .. } | SourceSpec::Orchestrator(access) => {
            format!("{}:{}", source.kind(), access.target)
        }
        SourceSpec::Socket(path) | SourceSpec::Replay { path, .. } | SourceSpec::Log { path, .. } => {
            format!("{}:{}", source.kind(), path.display())
        }
        SourceSpec::Otlp(receiver) => format!("otlp:{}", receiving(receiver)),
        SourceSpec::PerfMetrics(dir) => format!("{}:{}", source.kind(), dir.path.display()),
        SourceSpec::Auto { ports } => {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            format!("auto: the ports {} and those of processes of trtllm-serve", ports.join(", "))
        }
        SourceSpec::Kubernetes(pods) => {
            let namespace =
                pods.namespace.as_ref().map_or("all namespaces".to_owned(), |name| format!("namespace {name}"));
            let nodes = if pods.all_nodes { "all nodes" } else { "one node" };
            format!("kubernetes: the pods in {namespace} on {nodes}")
        }
    }
}

fn receiving(SpanReceiver { address, forward_to }: &SpanReceiver) -> String {
    forward_to.as_ref().map_or(address.to_string(), |endpoint| format!("{address}, forwarded to {endpoint}"))
}

fn files_of(source: &SourceSpec, file: &mut impl FnMut(&str, &Path, &str)) {
    let mut of_access = |access: &Access| {
        access.ca_file.iter().for_each(|path| file("reads", path, "ca_file"));
        access.bearer_token_file.iter().for_each(|path| file("reads", path, "bearer_token_file"));
    };
    match source {
        SourceSpec::TrtllmServe { access, extras } => {
            of_access(access);
            extras.lines.iter().for_each(|dir| file("reads below", &dir.path, "perf_metrics_dir"));
        }
        SourceSpec::Orchestrator(access) => of_access(access),
        SourceSpec::Socket(path) => file("listens on", path, "socket:"),
        SourceSpec::Replay { path, .. } => file("reads", path, "replay:"),
        SourceSpec::Log { path, .. } => file("reads", path, "log:"),
        SourceSpec::PerfMetrics(dir) => file("reads below", &dir.path, "perf-metrics:"),
        SourceSpec::Executor(hosting) => file("loads", Path::new(&hosting.engine), "executor:"),
        SourceSpec::Kubernetes(pods) => pods.api_server.iter().for_each(of_access),
        SourceSpec::Simulated(_) | SourceSpec::Otlp(_) | SourceSpec::Auto { .. } => {}
    }
}
