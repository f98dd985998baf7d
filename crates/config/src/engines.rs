//! Checks what must differ between engines: names, servers, sockets and GPUs. Also checks whether each source can be opened, as far
//! as this can be known without a server, a model or a GPU.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

#[cfg(feature = "executor")]
use trtllm_sources::executor;
#[cfg(feature = "executor")]
use trtllm_sources::hosting::Hosting;
use trtllm_sources::perf_metrics_dir::LinesDir;
use trtllm_sources::playback::Playback;
use trtllm_sources::replay::Replay;
use trtllm_sources::simulated::Simulated;
#[cfg(feature = "executor")]
use trtllm_sources::simulated::is_in_process;
use trtllm_sources::trtllm_serve::Extras;
use trtllm_sources::{OpenError, iteration_log, socket};

use super::engine_config::EngineConfig;
use super::entry::{Entry, Origin};
use super::error::ConfigError;
use super::source::{SourceSpec, server_key};

/// Checks each entry, and that no two share a name, a socket, a server or a GPU.
pub(super) fn check(entries: Vec<(Origin, Entry)>) -> Result<Vec<EngineConfig>, ConfigError> {
    let (mut taken, mut engines) = (HashMap::<String, u64>::new(), Vec::new());
    for (origin, entry) in entries {
        let engine = entry.check(&origin)?;
        for (claim, remedy) in claims(&engine) {
            if let Some(line) = taken.get(&claim) {
                // Flags have no line.
                let place = if *line == 0 { String::new() } else { format!(" (line {line})") };
                return Err(origin.wrong(origin.line, format!("{claim} another engine{place}; {remedy}")));
            }
            taken.insert(claim, origin.line);
        }
        engines.push((origin, engine));
    }
    // Only then look at the files that the sources name, so that mistakes in the text of all entries come first.
    let opened = engines.into_iter().map(|(origin, engine)| match can_be_opened(&engine.source) {
        Ok(()) => Ok(engine),
        Err(why) => Err(origin.wrong(origin.line, why)),
    });
    opened.collect()
}

/// What only one engine may have, in words that "another engine" follows, and what to do if two have it.
fn claims(engine: &EngineConfig) -> Vec<(String, &'static str)> {
    // Without repeated slashes.
    let plain = |path: &Path| path.components().collect::<PathBuf>().display().to_string();
    let mut claims = match &engine.source {
        SourceSpec::Socket(path) => {
            vec![(format!("the ingest socket {:?} is that of", plain(path)), "give each engine its own path")]
        }
        SourceSpec::TrtllmServe { access, .. } | SourceSpec::Orchestrator(access) => vec![(
            format!("the server {:?} is read by", server_key(&access.target).trim_end_matches('/')),
            "remove one of them, because a server has one reader",
        )],
        SourceSpec::Auto { .. } | SourceSpec::Kubernetes(_) => {
            vec![("a search (auto or kubernetes:) is the source of".to_owned(), "remove one of them")]
        }
        SourceSpec::PerfMetrics(LinesDir { path, .. }) | SourceSpec::Log { path, .. } => {
            vec![(format!("{:?} is read by", plain(path)), "remove one of them")]
        }
        _ => Vec::new(),
    };
    // A server has other lines in its directory than those that perf-metrics: counts.
    if let SourceSpec::TrtllmServe { extras: Extras { lines: Some(lines), .. }, .. } = &engine.source {
        claims.push((format!("the lines of {:?} are read for", plain(&lines.path)), "give each its own directory"));
    }
    if let Some(receiver) = engine.source.span_receiver() {
        claims.push((format!("spans for {} are received by", receiver.address), "give each its own address"));
    }
    for gpu in &engine.gpus {
        let remedy = "remove it where it is wrong, or from both, because a shared GPU has no energy per engine";
        claims.push((format!("gpus has {gpu}, a GPU of"), remedy));
    }
    if !engine.names_its_engines {
        let (model, version) = (&engine.name.model, &engine.name.version);
        let remedy =
            "give each engine its own model or version (one --model per --source, or the keys of --config.file)";
        claims.push((format!("model {model:?} and version {version:?} are those of"), remedy));
    }
    claims
}

/// Finds errors that would make opening the source fail.
fn can_be_opened(source: &SourceSpec) -> Result<(), String> {
    let checked = match source {
        #[cfg(feature = "executor")]
        SourceSpec::Executor(hosting) => executor::check(hosting),
        #[cfg(not(feature = "executor"))]
        SourceSpec::Executor(_) => Ok(()),
        #[cfg(feature = "executor")]
        SourceSpec::Simulated(engine) if !is_in_process(engine) => executor::check(&Hosting::plain(engine.clone())),
        SourceSpec::Simulated(engine) => Simulated::open(engine).map(drop),
        SourceSpec::TrtllmServe { access, extras } => {
            access.check().and_then(|()| extras.lines.as_ref().map_or(Ok(()), LinesDir::check))
        }
        SourceSpec::Orchestrator(access) => access.check(),
        SourceSpec::PerfMetrics(dir) => dir.check(),
        SourceSpec::Socket(path) => socket::check(path),
        SourceSpec::Replay { path, engine, pace } if path.is_dir() => {
            Playback::open(path, engine.as_deref(), *pace).map(drop)
        }
        SourceSpec::Replay { path, pace, .. } => Replay::check(path, *pace),
        SourceSpec::Log { path, .. } => iteration_log::check(path),
        SourceSpec::Kubernetes(selection) => selection.check(),
        SourceSpec::Otlp(_) | SourceSpec::Auto { .. } => Ok(()),
    };
    checked.map_err(|error| match error {
        // The message already begins with the place of the source, which names the engine.
        OpenError::Engine { cause, .. } => cause,
        error => error.to_string(),
    })
}
