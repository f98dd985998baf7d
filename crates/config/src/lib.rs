//! What the two programs, `trtllm-exporter` and `trtllm-doctor`, share: the configured engines, from flags or from a file, and
//! [`command_line`]. It reads only that file and the files that it names.
#![forbid(unsafe_code)]

pub mod command_line;
mod engine_config;
mod engines;
mod entry;
mod error;
mod file;
mod forms;
mod gpus;
mod hosted;
mod nearest;
mod options;
mod secrets;
mod source;

use std::path::Path;

use trtllm_records::Objectives;
use trtllm_service::small_file;

use entry::{Entry, Origin};

pub use engine_config::{
    DEFAULT_MODEL, DEFAULT_VERSION, EngineConfig, ORCHESTRATOR_MODEL, gpu_hour_cost, local_port, read_bench_report,
};
pub use error::ConfigError;
pub use forms::FORMS;
pub use secrets::{hide_secrets, hide_secrets_of_url};
pub use source::{SourceSpec, server_key};

/// Reads and checks `--config.file`, or returns its first mistake.
pub fn read_file(path: &Path) -> Result<Vec<EngineConfig>, ConfigError> {
    let failed = |cause| ConfigError::File { path: path.to_owned(), cause };
    let bytes = small_file::read(path)
        .map_err(|error| failed(format!("cannot read the file: {error}; check the path and its permissions")))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| failed(format!("the file is not UTF-8: {error}; save it as UTF-8")))?;
    engines::check(file::entries(path, &text)?)
}

/// The engines of `--source`, or the first mistake in them. `models` and `versions` have one value for all engines, or one per engine
/// in the same order. All engines have the same objectives.
pub fn from_flags(
    sources: &[String],
    models: &[String],
    versions: &[String],
    objectives: Objectives,
) -> Result<Vec<EngineConfig>, ConfigError> {
    for (flag, names) in [("--model", models), ("--model-version", versions)] {
        let (values, flags) = (names.len(), sources.len());
        if values > 1 && values != flags {
            let why = format!("{values} values for {flags} --source flags; use one for all or one per --source");
            return Err(ConfigError::flag(flag, names.join(", "), why));
        }
    }
    let given = |names: &[String], index: usize| names.get(index).or(names.first()).cloned();
    let entries = sources.iter().enumerate().map(|(index, source)| {
        (Origin::flag(source), Entry::of_flags(source.clone(), given(models, index), given(versions, index)))
    });
    let mut engines = engines::check(entries.collect())?;
    for engine in &mut engines {
        engine.name.objectives = objectives;
    }
    Ok(engines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_server_on_this_host_is_known() {
        assert_eq!(local_port("http://127.0.0.1:8000"), Some(8000));
        assert_eq!(local_port("https://localhost:443/base"), Some(443));
        assert_eq!(local_port("http://[::1]:8000"), Some(8000));
        for elsewhere in ["http://llama-0:8000", "http://10.0.0.1:8000", "http://localhost", "localhost:1"] {
            assert_eq!(local_port(elsewhere), None, "{elsewhere}");
        }
    }

    fn read(text: &str) -> Result<Vec<EngineConfig>, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yaml");
        std::fs::write(&path, text).unwrap();
        read_file(&path)
    }

    #[test]
    fn any_number_of_engines_may_share_the_keys_of_one() {
        let entry = |number| format!("- <<: *base\n  source: socket:{number}\n  model: m{number}\n");
        let others: String = (1..200).map(entry).collect();
        let base = "- &base\n  source: socket:0\n  model: m0\n  version: 1.0\n  labels: {team: search}\n";
        let engines = read(&format!("engines:\n{base}{others}")).unwrap();
        assert_eq!(engines.len(), 200);
        for (number, EngineConfig { name, .. }) in engines.iter().enumerate() {
            assert_eq!((name.model.as_str(), name.version.as_str()), (format!("m{number}").as_str(), "1.0"));
            assert_eq!(name.labels, [("team".to_owned(), "search".to_owned())]);
        }
    }

    #[test]
    fn a_file_cannot_fill_the_memory() {
        let levels: String = (1..30).map(|level| format!("- &a{level} [*a{0}, *a{0}, *a{0}]\n", level - 1)).collect();
        let gpus = |text: &str| format!("engines:\n- source: socket:a\n  model: a\n  gpus: {text}\n");
        for text in [format!("- &a0 x\n{levels}"), gpus(&format!("[{}]", "a, ".repeat(200_000))), gpus("&a [*a]")] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains("; "), "{error}");
        }
    }
}
