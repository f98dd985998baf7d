//! `--source`: the kind of source, its address and its options.

use std::path::PathBuf;
use std::str::FromStr;

use super::options::Options;
#[cfg(feature = "executor")]
use crate::sources::executor::hosting::Hosting;
use crate::sources::replay::Pace;
use crate::sources::trtllm_serve::Extras;

/// A parsed `--source`.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceSpec {
    /// `sim:…`, which the simulated SDK takes as an engine directory.
    Simulated(String),
    /// An engine that runs in this process.
    #[cfg(feature = "executor")]
    Executor(Box<Hosting>),
    TrtllmServe {
        /// `http://HOST:PORT[/BASE]`
        target: String,
        extras: Extras,
    },
    Socket(PathBuf),
    Replay {
        path: PathBuf,
        pace: Pace,
    },
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
                    perf_metrics: options.boolean("perf_metrics")?.unwrap_or(true),
                    kv_cache_events: options.boolean("kv_cache_events")?.unwrap_or(false),
                    prometheus_metrics: options.boolean("prometheus_metrics")?.unwrap_or(true),
                },
            },
            "socket" | "replay" if body.is_empty() => return Err(format!("{scheme}: has no path; use {scheme}:PATH")),
            "socket" => Self::Socket(PathBuf::from(body)),
            "replay" => {
                let pace = match (options.above_zero("rate")?, options.speed()?) {
                    (Some(_), Some(_)) => {
                        return Err("rate and speed cannot be combined; remove one of them".to_owned());
                    }
                    (Some(rate), None) => Pace::Rate(rate),
                    (None, speed) => Pace::Recorded(speed.unwrap_or(1.0)),
                };
                Self::Replay { path: PathBuf::from(body), pace }
            }
            #[cfg(feature = "executor")]
            "executor" => Self::Executor(Box::new(super::hosted::hosting(body, &mut options)?)),
            #[cfg(not(feature = "executor"))]
            "executor" => return Err("this build has no Executor; build it with the feature \"executor\"".to_owned()),
            "triton" => return Err(format!("a Triton server's page is not a source; {SOURCES}")),
            _ => return Err(format!("unknown scheme; {SOURCES}")),
        };
        options.finish()?;
        Ok(spec)
    }
}

fn http_target(url: &str) -> Result<String, String> {
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
    Ok(format!("http://{}:{port}{}", authority.host(), uri.path().trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_source_is_parsed() {
        let read = |url: &str| url.parse::<SourceSpec>().unwrap();
        assert_eq!(read("sim:?rate=20"), SourceSpec::Simulated("sim:?rate=20".to_owned()));
        let serve = |target: &str, perf_metrics, kv_cache_events, prometheus_metrics| SourceSpec::TrtllmServe {
            target: target.to_owned(),
            extras: Extras { perf_metrics, kv_cache_events, prometheus_metrics },
        };
        assert_eq!(read("trtllm-serve:http://[::1]:8000/"), serve("http://[::1]:8000", true, false, true));
        assert_eq!(
            read("trtllm-serve:http://gpu7/a/b?perf_metrics=false&kv_cache_events=true&prometheus_metrics=false"),
            serve("http://gpu7:80/a/b", false, true, false)
        );
        assert_eq!(read("socket:/run/x.sock"), SourceSpec::Socket("/run/x.sock".into()));
        assert_eq!(read("replay:a.json"), SourceSpec::Replay { path: "a.json".into(), pace: Pace::Recorded(1.0) });
        assert_eq!(read("replay:a?rate=10"), SourceSpec::Replay { path: "a".into(), pace: Pace::Rate(10.0) });
        assert_eq!(
            read("replay:a?speed=max"),
            SourceSpec::Replay { path: "a".into(), pace: Pace::Recorded(f64::INFINITY) }
        );
    }
}
