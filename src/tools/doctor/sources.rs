//! Asks sources directly, only for what drains nothing: never `/metrics`, `/perf_metrics` or `/kv_cache_events` of an engine.

use std::path::Path;

use serde::Deserialize;

use crate::cli::DoctorArgs;
use crate::config::{ConfigError, SourceSpec, read_file};
use crate::sources::discovery::{USUAL_PORT, Verdict, search};
use crate::sources::server::Access;

use super::super::exporters::client::{Client, Failure};
use super::super::exporters::page::Page;
use super::observation::{Exporter, Reached, SourceAnswer};

/// A source, and the model of its engine if it is configured.
type Named = (SourceSpec, Option<String>);

/// The sources of the command line or the configuration file.
///
/// # Errors
/// When one is invalid.
pub(super) fn configured(arguments: &DoctorArgs) -> Result<Vec<Named>, ConfigError> {
    if arguments.no_sources {
        return Ok(Vec::new());
    }
    if let Some(path) = &arguments.config_file {
        let engines = read_file(path)?;
        return Ok(engines.into_iter().map(|engine| (engine.source, Some(engine.name.model))).collect());
    }
    let typed = arguments.source.iter().flat_map(|urls| urls.split_whitespace());
    let mut sources = Vec::new();
    for url in typed {
        let invalid = |why| ConfigError::Flag { flag: "--source", value: url.to_owned(), why };
        sources.push((url.parse::<SourceSpec>().map_err(invalid)?, None));
    }
    let of_this_host =
        |url: &String| ["127.", "localhost", "[::1]"].iter().any(|host| url.contains(&format!("://{host}")));
    if sources.is_empty() && arguments.connection.urls.iter().any(of_this_host) {
        sources.push((SourceSpec::Auto { ports: vec![USUAL_PORT] }, None));
    }
    Ok(sources)
}

/// Asks all sources.
pub(super) async fn ask(sources: Vec<Named>, exporters: &[Exporter]) -> Vec<SourceAnswer> {
    let starting = exporters.iter().flat_map(|exporter| &exporter.engines).any(|engine| engine.state() == "starting");
    let mut answers = Vec::new();
    for (source, model) in sources {
        match source {
            SourceSpec::TrtllmServe { access, .. } => answers.push(ask_server(access, model, starting).await),
            SourceSpec::Auto { ports } => {
                for finding in search(ports).await {
                    if let Verdict::Engine(model) = finding.verdict {
                        let access = Access { target: finding.target, ca_file: None, bearer_token_file: None };
                        answers.push(ask_server(access, Some(model), starting).await);
                    }
                }
            }
            SourceSpec::Socket(path) => {
                let reached = if Path::new(&path).exists() { Reached::Yes } else { Reached::NoSocket };
                answers.push(SourceAnswer {
                    target: format!("socket:{}", path.display()),
                    model,
                    reached,
                    ..SourceAnswer::default()
                });
            }
            // An engine of the exporter's own process cannot be asked from another one.
            _ => {}
        }
    }
    answers
}

async fn ask_server(access: Access, model: Option<String>, starting: bool) -> SourceAnswer {
    let target = access.target.clone();
    let mut answer = SourceAnswer { target, model, starting, ..SourceAnswer::default() };
    let mut client = match Client::of_source(access).await {
        Ok(client) => client,
        Err(error) => {
            answer.reached = Reached::No(error.to_string());
            return answer;
        }
    };
    match client.get("/version").await {
        Ok(body) => {
            #[derive(Deserialize)]
            struct Version {
                version: String,
            }
            match serde_json::from_slice::<Version>(&body) {
                Ok(Version { version }) => answer.version = Some(version.chars().take(64).collect()),
                Err(_) => answer.reached = Reached::Other,
            }
        }
        Err(Failure::Status(status @ (401 | 403))) => answer.reached = Reached::Refused(status),
        Err(Failure::Status(status)) if status < 500 => answer.reached = Reached::Other,
        // /health says more.
        Err(Failure::Status(_)) => {}
        Err(Failure::Unanswered(why)) => answer.reached = Reached::No(why),
    }
    if answer.reached != Reached::Yes {
        return answer;
    }
    answer.health = match client.get("/health").await {
        Ok(_) => Some(200),
        Err(Failure::Status(status)) => Some(status),
        Err(Failure::Unanswered(_)) => None,
    };
    answer.page = match client.get("/prometheus/metrics").await {
        Ok(body) => Some(Ok(Page::parse(&body))),
        Err(Failure::Status(status)) => Some(Err(status)),
        Err(Failure::Unanswered(_)) => None,
    };
    answer
}
