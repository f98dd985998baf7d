//! Checks what must differ between engines: names, servers, sockets and GPUs. Also checks whether each source can be opened, as far
//! as this can be known without a server, a model or a GPU.

use std::collections::HashMap;
use std::hash::Hash;

use trtllm_intake::Playback;
#[cfg(feature = "executor")]
use trtllm_sources::executor;
#[cfg(feature = "executor")]
use trtllm_sources::hosting::Hosting;
use trtllm_sources::perf_metrics_dir::LinesDir;
use trtllm_sources::replay::Replay;
use trtllm_sources::simulated::Simulated;
#[cfg(feature = "executor")]
use trtllm_sources::simulated::is_in_process;
use trtllm_sources::trtllm_serve::Extras;
use trtllm_sources::{OpenError, iteration_log, socket};

use super::engine_config::EngineConfig;
use super::entry::{Entry, Origin};
use super::error::ConfigError;
use super::gpus;
use super::source::SourceSpec;
use super::source::server_key;

/// Checks each entry, and that no two share a name, a socket, a server or a GPU. `remedy` tells the user how to name engines.
pub(super) fn check(entries: Vec<(Origin, Entry)>, remedy: &str) -> Result<Vec<EngineConfig>, ConfigError> {
    let (mut names, mut sockets, mut servers, mut searches) = (Taken::new(), Taken::new(), Taken::new(), Taken::new());
    let (mut span_addresses, mut directories, mut files) = (Taken::new(), Taken::new(), Taken::new());
    let (mut engines, mut gpus) = (Vec::new(), gpus::Taken::new());
    for (origin, entry) in entries {
        let engine = entry.check(&origin)?;
        let wrong = |why| origin.wrong(origin.line, why);
        let shared = match &engine.source {
            SourceSpec::Socket(path) => taken(&mut sockets, path.clone(), &origin).map(|other| {
                format!("this ingest socket is used by another engine{other}; give each engine its own path")
            }),
            source @ (SourceSpec::TrtllmServe { access, .. } | SourceSpec::Orchestrator(access)) => {
                let why = match source {
                    SourceSpec::Orchestrator(_) => "an address is that of one server",
                    _ => "two readers would take each other's records",
                };
                taken(&mut servers, server_key(&access.target), &origin)
                    .map(|other| format!("this server is read by another engine{other}; {why}. Remove one of them"))
            }
            SourceSpec::Auto { .. } | SourceSpec::Kubernetes(_) => taken(&mut searches, (), &origin)
                .map(|other| format!("auto or kubernetes: is given twice{other}; remove one of them")),
            _ => None,
        };
        let span_address = engine.source.span_receiver().and_then(|receiver| {
            taken(&mut span_addresses, receiver.address, &origin).map(|other| {
                format!(
                    "spans for {} are received by another engine{other}; give each its own address",
                    receiver.address
                )
            })
        });
        let directory = match &engine.source {
            SourceSpec::TrtllmServe { extras: Extras { lines: Some(lines), .. }, .. } => {
                taken(&mut directories, lines.path.clone(), &origin).map(|other| {
                    format!(
                        "the lines of {} are read for another engine{other}; give each its own directory",
                        lines.path.display()
                    )
                })
            }
            // A server has other lines in its directory than those that this source counts.
            SourceSpec::PerfMetrics(LinesDir { path, .. }) | SourceSpec::Log { path, .. } => {
                taken(&mut files, path.clone(), &origin)
                    .map(|other| format!("{} is read by another engine{other}; remove one of them", path.display()))
            }
            _ => None,
        };
        shared.or(span_address).or(directory).map_or(Ok(()), Err).map_err(wrong)?;
        let (model, version) = (&engine.name.model, &engine.name.version);
        if !engine.names_its_engines
            && let Some(other) = taken(&mut names, (model.clone(), version.clone()), &origin)
        {
            return Err(wrong(format!(
                "duplicate engine with model {model:?} and version {version:?}{other}; \
                 give each engine its own model or version ({remedy})"
            )));
        }
        gpus::take(&engine.gpus, &engine.name, &mut gpus).map_err(wrong)?;
        engines.push((origin, engine));
    }
    // Only then look at the files that the sources name, so that mistakes in the text of all entries come first.
    let opened = engines.into_iter().map(|(origin, engine)| match can_be_opened(&engine.source) {
        Ok(()) => Ok(engine),
        Err(why) => Err(origin.wrong(origin.line, why)),
    });
    opened.collect()
}

/// For each value that only one entry may have, the line of the entry that has it.
type Taken<T> = HashMap<T, u64>;

/// Describes where another entry with this key is. If there is none, the key is now taken by the entry at `origin`.
fn taken<T: Hash + Eq>(taken: &mut Taken<T>, key: T, origin: &Origin) -> Option<String> {
    match taken.get(&key) {
        Some(0) => Some(String::new()),
        Some(line) => Some(format!(" (line {line})")),
        None => {
            taken.insert(key, origin.line);
            None
        }
    }
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
        SourceSpec::Replay { path, engine, pace } if path.is_dir() => Playback::check(path, engine.as_deref(), *pace),
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
