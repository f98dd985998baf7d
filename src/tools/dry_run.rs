//! `--dry-run` and `check-config FILE` print what a start would use, after the same checks as a start. They open nothing for
//! writing and ask no server.

use std::fmt::Write as _;
use std::path::Path;

use crate::cli::Cli;
use trtllm_config::{EngineConfig, SourceSpec};
#[cfg(feature = "executor")]
use trtllm_sources::executor;

use super::unjudged;
use trtllm_config::command_line::print;

/// Prints the sources with their addresses and files, the listen addresses, and the files of flags.
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
        let (names, more) = (names(engine), more_addresses(&engine.source));
        let _ = write!(text, "  {names}, from {}{more}\n{}", engine.url, unjudged(engine));
    }
    text += "listen addresses:\n";
    if cli.web.systemd_socket {
        text += "  the sockets that systemd passes: the metrics, at ";
        let _ = writeln!(text, "{}", cli.web.telemetry_path);
    }
    for address in cli.web.listen_address.iter().filter(|_| !cli.web.systemd_socket) {
        let _ = writeln!(text, "  {address}: the metrics, at {}", cli.web.telemetry_path);
    }
    for address in cli.web.health_addresses().unwrap_or_default() {
        let _ = writeln!(text, "  {address}: health checks");
    }
    text += "files of flags:\n";
    let mut is_any = false;
    for (does, path, flag) in [
        ("reads", &cli.sources.config_file, "--config.file"),
        ("reads", &cli.web.web_config_file, "--web.config.file"),
        ("reads", &cli.sources.bench_report, "--bench-report"),
        ("loads", &cli.gpu.library, "--gpu.library"),
        ("writes", &cli.web.port_file, "--web.port-file"),
        ("writes below", &cli.record.dir, "--record.dir"),
    ] {
        if let Some(path) = path {
            let _ = writeln!(text, "  {does} {} ({flag})", path.display());
            is_any = true;
        }
    }
    if !is_any {
        text += "  none\n";
    }
    let _ = writeln!(text, "GPU metrics: {}", cli.gpu.mode.name());
    text
}

/// The addresses of a source that its text may not have: the default port of `auto`, and the endpoint of `--otlp.endpoint`.
fn more_addresses(source: &SourceSpec) -> String {
    match (source, source.span_receiver().and_then(|receiver| receiver.forward_to.as_ref())) {
        (SourceSpec::Auto { ports }, _) => format!(", at the ports {ports:?} and those of processes of trtllm-serve"),
        (_, Some(endpoint)) => format!(", spans are forwarded to {endpoint}"),
        _ => String::new(),
    }
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
