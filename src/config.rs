//! The engines to watch, from flags or a file, parsed and checked. The only I/O is reading the file.

#[cfg(feature = "executor")]
mod hosted;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

use crate::metrics::catalog::{CATALOG, Metric};
#[cfg(feature = "executor")]
use crate::sources::executor::hosting::Hosting;
use crate::sources::http_client::HttpTarget;
use crate::sources::replay::Pace;
use crate::sources::trtllm_serve::Extras;
use crate::state::EngineName;

/// Labels of an engine without configured ones.
pub const DEFAULT_MODEL: &str = "tensorrt_llm";
pub const DEFAULT_VERSION: &str = "1";

/// A parsed `--source`.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceSpec {
    /// `sim:…`, which the simulated SDK takes as an engine directory.
    Simulated(String),
    /// An engine that runs in this process.
    #[cfg(feature = "executor")]
    Executor(Box<Hosting>),
    TrtllmServe {
        target: HttpTarget,
        extras: Extras,
    },
    Socket(PathBuf),
    Replay {
        path: PathBuf,
        pace: Pace,
    },
}

/// One engine on the page.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    pub name: EngineName,
    pub source: SourceSpec,
}

/// An invalid configuration; the text names the flag or key and the remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("{at} {url:?}: {why}")]
    Source { at: String, url: String, why: String },
    #[error("{at}: cannot read {path}: {cause}")]
    Unreadable { at: String, path: PathBuf, cause: String },
    #[error("--config.file {path}: {cause}")]
    File { path: PathBuf, cause: String },
    #[error("{at}: label {name:?} {why}")]
    Label { at: String, name: String, why: &'static str },
    #[error("{at}: {key} must not be empty; remove it to use the default")]
    Empty { at: String, key: &'static str },
    #[error(
        "{at}: duplicate engine with model {model:?} and version {version:?}; give each engine its own model or version ({remedy})"
    )]
    Duplicate { at: String, model: String, version: String, remedy: &'static str },
    #[error("{at}: {path} is already the ingest socket of another engine; give each engine its own path")]
    SharedSocket { at: String, path: PathBuf },
    #[error("{flag} {value}: {why}")]
    Flag { flag: &'static str, value: String, why: String },
}

const SOURCES: &str = "use sim:[?key=value&…], executor:DIR, trtllm-serve:http://HOST:PORT, socket:PATH or replay:FILE";

impl SourceSpec {
    /// The kind of source, as the label `source` shows it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Simulated(_) => "sim",
            #[cfg(feature = "executor")]
            Self::Executor(_) => "executor",
            Self::TrtllmServe { .. } => "trtllm-serve",
            Self::Socket(_) => "socket",
            Self::Replay { .. } => "replay",
        }
    }
}

impl FromStr for SourceSpec {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once(':').ok_or_else(|| format!("no scheme; {SOURCES}"))?;
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = Options::parse(query);
        let spec = match scheme {
            // The simulated SDK checks its options itself.
            "sim" if body.is_empty() => return Ok(Self::Simulated(url.to_owned())),
            "sim" => return Err(format!("unexpected {body:?} after sim:; use sim: or sim:?key=value&…")),
            "trtllm-serve" => Self::TrtllmServe {
                target: http_target(body)?,
                extras: Extras {
                    perf_metrics: options.boolean("perf_metrics", true)?,
                    kv_cache_events: options.boolean("kv_cache_events", false)?,
                },
            },
            "socket" | "replay" if body.is_empty() => return Err(format!("{scheme}: has no path; use {scheme}:PATH")),
            "socket" => Self::Socket(PathBuf::from(body)),
            "replay" => {
                let pace = match (options.positive("rate")?, options.take("speed").as_deref()) {
                    (Some(_), Some(_)) => {
                        return Err("rate and speed cannot be combined; remove one of them".to_owned());
                    }
                    (Some(rate), None) => Pace::Rate(rate),
                    (None, None | Some("recorded")) => Pace::Recorded(1.0),
                    (None, Some("max")) => Pace::Unlimited,
                    (None, Some(times)) => Pace::Recorded(positive("speed", times)?),
                };
                Self::Replay { path: PathBuf::from(body), pace }
            }
            #[cfg(feature = "executor")]
            "executor" => Self::Executor(Box::new(hosted::hosting(body, &mut options)?)),
            #[cfg(not(feature = "executor"))]
            "executor" => return Err("this build has no Executor; build it with the feature \"executor\"".to_owned()),
            "triton" => return Err(format!("a Triton server's page is not a source; {SOURCES}")),
            _ => return Err(format!("unknown scheme; {SOURCES}")),
        };
        options.finish()?;
        Ok(spec)
    }
}

struct Options(Vec<(String, String)>);

impl Options {
    fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.remove(at).1)
    }

    fn boolean(&mut self, key: &str, default: bool) -> Result<bool, String> {
        match self.take(key).as_deref() {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(format!("{key} must be true or false, not {other:?}")),
        }
    }

    fn positive(&mut self, key: &str) -> Result<Option<f64>, String> {
        self.take(key).map(|value| positive(key, &value)).transpose()
    }

    fn finish(self) -> Result<(), String> {
        match self.0.first() {
            Some((name, _)) => Err(format!("unknown option {name:?}")),
            None => Ok(()),
        }
    }
}

fn positive(key: &str, value: &str) -> Result<f64, String> {
    value
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number > 0.0)
        .ok_or(format!("{key} must be a number above 0, not {value:?}"))
}

fn http_target(url: &str) -> Result<HttpTarget, String> {
    const FORM: &str = "expected trtllm-serve:http://HOST:PORT";
    let uri: http::Uri = url.parse().map_err(|error| format!("{error}; {FORM}"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err("https is not supported; use http".to_owned()),
        _ => return Err(FORM.to_owned()),
    }
    let authority = uri.authority().ok_or(FORM)?;
    if authority.as_str().contains('@') {
        return Err("a user and password in the URL are not supported; remove them".to_owned());
    }
    let port = authority.port_u16().unwrap_or(80);
    Ok(HttpTarget {
        authority: format!("{}:{port}", authority.host()),
        base: uri.path().trim_end_matches('/').to_owned(),
    })
}

/// `--config.file`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    engines: Vec<FileEngine>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEngine {
    source: String,
    model: Option<String>,
    version: Option<String>,
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
}

/// Reads `--config.file`.
///
/// # Errors
/// When the file cannot be read, is malformed, or an engine in it is invalid.
pub fn read_file(path: &Path) -> Result<Vec<EngineConfig>, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
        at: "--config.file".to_owned(),
        path: path.to_owned(),
        cause: error.to_string(),
    })?;
    let file: File = serde_saphyr::from_str(&text).map_err(|error| ConfigError::File {
        path: path.to_owned(),
        // The parser's message spans several lines; ours is one line.
        cause: error.without_snippet().to_string().lines().collect::<Vec<_>>().join(" "),
    })?;
    if file.engines.is_empty() {
        let cause = "engines is empty; remove --config.file to serve GPU metrics only".to_owned();
        return Err(ConfigError::File { path: path.to_owned(), cause });
    }
    let engines = file.engines.into_iter().enumerate().map(|(index, engine)| {
        let at = format!("{} engines[{index}]", path.display());
        engine_config(&at, &engine.source, engine.model, engine.version, engine.labels)
    });
    let engines = engines.collect::<Result<Vec<_>, _>>()?;
    check_distinct(&engines, |index| format!("{} engines[{index}]", path.display()), "keys model and version")?;
    Ok(engines)
}

/// The engines of `--source`, with the labels of `--model` and `--model-version`: one value for all engines, or one per engine
/// in the same order.
///
/// # Errors
/// When a source is invalid or two engines have the same labels.
pub fn from_flags(
    sources: &[String],
    models: &[String],
    versions: &[String],
) -> Result<Vec<EngineConfig>, ConfigError> {
    for (flag, names) in [("--model", models), ("--model-version", versions)] {
        if names.len() > 1 && names.len() != sources.len() {
            return Err(ConfigError::Flag {
                flag,
                value: names.join(", "),
                why: format!(
                    "{} values for {} --source flags; use one for all or one per --source",
                    names.len(),
                    sources.len()
                ),
            });
        }
    }
    let named = |names: &[String], index: usize| names.get(index).or(names.first()).cloned();
    let engines = sources.iter().enumerate().map(|(index, source)| {
        engine_config("--source", source, named(models, index), named(versions, index), Default::default())
    });
    let engines = engines.collect::<Result<Vec<_>, _>>()?;
    check_distinct(&engines, |_| "--source".to_owned(), "one --model per --source, or --config.file")?;
    Ok(engines)
}

fn engine_config(
    at: &str,
    source: &str,
    model: Option<String>,
    version: Option<String>,
    labels: std::collections::BTreeMap<String, String>,
) -> Result<EngineConfig, ConfigError> {
    let spec: SourceSpec =
        source.parse().map_err(|why| ConfigError::Source { at: at.to_owned(), url: source.to_owned(), why })?;
    let or_default = |value: Option<String>, key, default: &str| match value {
        Some(value) if value.is_empty() => Err(ConfigError::Empty { at: at.to_owned(), key }),
        Some(value) => Ok(value),
        None => Ok(default.to_owned()),
    };
    for name in labels.keys() {
        check_label(at, name)?;
    }
    let name = EngineName {
        model: or_default(model, "model", DEFAULT_MODEL)?,
        version: or_default(version, "version", DEFAULT_VERSION)?,
        labels: labels.into_iter().collect(),
        source: spec.kind(),
        implicit: false,
    };
    Ok(EngineConfig { name, source: spec })
}

fn check_label(at: &str, name: &str) -> Result<(), ConfigError> {
    let invalid = |why| Err(ConfigError::Label { at: at.to_owned(), name: name.to_owned(), why });
    let valid =
        |(index, byte): (usize, u8)| byte == b'_' || byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit());
    if name.is_empty() || !name.bytes().enumerate().all(valid) {
        return invalid("is not a valid label name; use letters, digits and _");
    }
    // Labels of GPU series are free: an engine may have the labels pod and namespace.
    let of_gpus = |metric: &&Metric| metric.labels.contains(&"gpu_uuid") || metric.labels.contains(&"UUID");
    let ours = CATALOG
        .iter()
        .filter(|metric| !of_gpus(metric))
        .any(|metric| metric.labels.contains(&name) || metric.variant.is_some_and(|variant| variant.label == name));
    if name == "le"
        || name == "quantile"
        || ["gpu", "gpu_uuid", "UUID"].contains(&name)
        || name.starts_with("__")
        || ours
    {
        return invalid("is reserved; choose another name");
    }
    Ok(())
}

fn check_distinct(
    engines: &[EngineConfig],
    at: impl Fn(usize) -> String,
    remedy: &'static str,
) -> Result<(), ConfigError> {
    let (mut names, mut sockets) = (HashSet::new(), HashSet::new());
    for (index, engine) in engines.iter().enumerate() {
        let name = &engine.name;
        if !names.insert((&name.model, &name.version)) {
            let (model, version) = (name.model.clone(), name.version.clone());
            return Err(ConfigError::Duplicate { at: at(index), model, version, remedy });
        }
        if let SourceSpec::Socket(path) = &engine.source
            && !sockets.insert(path)
        {
            return Err(ConfigError::SharedSocket { at: at(index), path: path.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_source_is_parsed() {
        let read = |url: &str| url.parse::<SourceSpec>().unwrap();
        assert_eq!(read("sim:?rate=20"), SourceSpec::Simulated("sim:?rate=20".to_owned()));
        let target =
            |authority: &str, base: &str| HttpTarget { authority: authority.to_owned(), base: base.to_owned() };
        let serve = |target, perf_metrics, kv_cache_events| SourceSpec::TrtllmServe {
            target,
            extras: Extras { perf_metrics, kv_cache_events },
        };
        assert_eq!(read("trtllm-serve:http://[::1]:8000/"), serve(target("[::1]:8000", ""), true, false));
        assert_eq!(
            read("trtllm-serve:http://gpu7/a/b?perf_metrics=false&kv_cache_events=true"),
            serve(target("gpu7:80", "/a/b"), false, true)
        );
        assert_eq!(read("socket:/run/x.sock"), SourceSpec::Socket("/run/x.sock".into()));
        assert_eq!(read("replay:a.json"), SourceSpec::Replay { path: "a.json".into(), pace: Pace::Recorded(1.0) });
        assert_eq!(read("replay:a?rate=10"), SourceSpec::Replay { path: "a".into(), pace: Pace::Rate(10.0) });
        assert_eq!(read("replay:a?speed=max"), SourceSpec::Replay { path: "a".into(), pace: Pace::Unlimited });
    }

    #[test]
    fn a_reserved_label_cannot_be_a_static_label() {
        for name in ["model", "le", "request_type", "gpu_uuid", "gpu", "__x", "a-b", "1a", ""] {
            assert!(check_label("x", name).is_err(), "{name}");
        }
        for name in ["team", "pod", "namespace"] {
            check_label("x", name).unwrap();
        }
    }
}
