//! Asks sources directly. Never reads `/metrics`, `/perf_metrics` or `/kv_cache_events` of an engine, because a read removes
//! the statistics that it returns.

use std::net::IpAddr;
use std::path::Path;

use http::Uri;

use crate::cli::DiagnoseArgs;
use crate::exporters::client::{Client, Failure, with_scheme};
use trtllm_config::{ConfigError, SourceSpec, read_file};
use trtllm_sources::discovery::{Identity, search};
use trtllm_sources::server::DEFAULT_PORT;
use trtllm_sources::server::{Access, check_token};
use trtllm_sources::server_facts::{VERSION_PATH, parse_version};
use trtllm_sources::server_page;

use super::read::Exporter;
use super::source_rules::{Reached, SourceAnswer};

/// A source, and the model of its engine if it is configured.
type Named = (SourceSpec, Option<String>);

/// The sources of the command line or the configuration file. Fails if one is invalid.
pub(super) fn configured(arguments: &DiagnoseArgs) -> Result<Vec<Named>, ConfigError> {
    if arguments.no_sources {
        return Ok(Vec::new());
    }
    if let Some(path) = &arguments.config_file {
        let engines = read_file(path)?;
        return Ok(engines.into_iter().map(|engine| (engine.source, Some(engine.name.model))).collect());
    }
    let mut sources = Vec::new();
    for url in &arguments.source {
        sources.push((url.parse().map_err(|why: String| ConfigError::flag("--source", url, why))?, None));
    }
    if sources.is_empty() && arguments.connection.urls.iter().any(|url| is_this_host(url)) {
        sources.push((SourceSpec::Auto { ports: vec![DEFAULT_PORT] }, None));
    }
    Ok(sources)
}

/// True if the URL of an exporter names this host.
fn is_this_host(url: &str) -> bool {
    let uri = with_scheme(url).parse::<Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Asks all sources at the same time, because each may take as long as its timeouts.
pub(super) async fn ask(sources: Vec<Named>, exporters: &[Exporter]) -> Vec<SourceAnswer> {
    let starting = exporters.iter().flat_map(|exporter| &exporter.engines).any(|engine| engine.state == "starting");
    let (mut asked, mut answers) = (Vec::new(), Vec::new());
    for (source, model) in sources {
        match source {
            SourceSpec::TrtllmServe { access, .. } => asked.push((access, model)),
            SourceSpec::Auto { ports } => {
                for finding in search(ports, Vec::new()).await {
                    if let Identity::Engine(model) = finding.identity {
                        let access = Access { target: finding.target, ca_file: None, bearer_token_file: None };
                        asked.push((access, Some(model)));
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
            // An engine in the exporter's process cannot be asked from here, and no rule about servers applies to orchestrators.
            _ => {}
        }
    }
    let asking = asked.into_iter().map(|(access, model)| {
        (access.target.clone(), model.clone(), tokio::spawn(ask_server(access, model, starting)))
    });
    for (target, model, task) in asking.collect::<Vec<_>>() {
        answers.push(task.await.unwrap_or_else(|error| SourceAnswer {
            target,
            model,
            reached: Reached::No(format!("a bug in trtllm-doctor: {error}; please report it")),
            ..SourceAnswer::default()
        }));
    }
    answers
}

async fn ask_server(access: Access, model: Option<String>, starting: bool) -> SourceAnswer {
    let target = access.target.clone();
    let mut answer = SourceAnswer { target, model, starting, ..SourceAnswer::default() };
    let token = access.bearer_token_file.clone();
    let failed = token
        .and_then(|path| Some(format!("cannot read the token in {}: {}", path.display(), check_token(&path).err()?)));
    let mut client = match (failed, Client::of_source(access).await.map_err(|error| error.to_string())) {
        (None, Ok(client)) => client,
        (Some(why), _) | (None, Err(why)) => {
            answer.reached = Reached::NotAsked(why);
            return answer;
        }
    };
    match client.get(VERSION_PATH).await {
        Ok(body) => match parse_version(&body) {
            Some(version) => answer.version = Some(version),
            None => answer.reached = Reached::Other,
        },
        Err(Failure::Status(status @ (401 | 403))) => answer.reached = Reached::Refused(status),
        // The server does not have the path.
        Err(Failure::Status(404 | 405 | 410)) => answer.reached = Reached::Other,
        // Go on, because the answer of /health says more.
        Err(Failure::Status(status)) => answer.version_status = Some(status),
        Err(Failure::NoUsableAnswer(why)) => answer.reached = Reached::No(why),
        Err(failure @ Failure::Starting) => {
            (answer.reached, answer.starting) = (Reached::No(failure.to_string()), true);
        }
    }
    if answer.reached != Reached::Yes {
        return answer;
    }
    answer.health = match client.get("/health").await {
        Ok(_) => Some(200),
        Err(Failure::Status(status)) => Some(status),
        Err(Failure::NoUsableAnswer(_) | Failure::Starting) => None,
    };
    answer.server_page = match client.get(server_page::PATH).await {
        Ok(body) => Some(Ok(String::from_utf8_lossy(&body).into_owned())),
        Err(Failure::Status(status)) => Some(Err(status)),
        Err(Failure::NoUsableAnswer(_) | Failure::Starting) => None,
    };
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loopback_address_or_localhost_names_this_host() {
        for url in ["http://127.0.0.1:8002", "https://127.8.9.1", "http://LocalHost:8002/m", "http://[::1]:8002"] {
            assert!(is_this_host(url), "{url}");
        }
        for url in
            ["http://localhost.example.com", "http://127.example.com", "http://h/?x=://localhost", "http://[::2]", ""]
        {
            assert!(!is_this_host(url), "{url}");
        }
    }
}
