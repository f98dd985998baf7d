//! Finds every trtllm-serve of this host or pod. It asks only ports where one is expected, because an unexpected
//! request could disturb another program. It reads only paths whose reading removes no statistics.

pub(crate) mod command;
mod processes;

use std::collections::HashSet;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use serde::Deserialize;
use tokio::task::JoinSet;

use super::error::SourceError;
use super::http_client::HttpClient;
use super::orchestrator_page::parse_cluster_info;
use super::server::TargetServer;
use super::server_facts::MAX_FACTS;
use super::trtllm_json::MAX_NAME;
use processes::{NamedServer, processes};
use trtllm_records::PodTrouble;
use trtllm_records::gpu::PodName;
use trtllm_service::permits::timeout;

/// Time between two searches.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of one server. The next search asks it again.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Limit of an answer in bytes. A list of models is short.
const MAX_ANSWER: usize = 64 << 10;
/// Limit of the servers that one search asks only because a process names them.
const MAX_SERVERS: usize = 64;

/// What was found at one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundServer {
    /// `http://HOST:PORT`
    pub target: String,
    /// The address has one of the configured ports.
    pub configured: bool,
    pub identity: Identity,
    /// The pod of the server, if Kubernetes told of it.
    pub pod: Option<FoundPod>,
}

/// The pod of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPod {
    /// Another pod with the same name has another one.
    pub uid: String,
    pub name: PodName,
    pub node: String,
    /// Tells the pods of one workload apart: the number of a StatefulSet's pod, or the end of the pod's name.
    pub replica: String,
    /// The model in the command line of the container.
    pub model: Option<String>,
    /// `None` while the container of the server runs.
    pub trouble: Option<PodTrouble>,
    /// The pod never runs again.
    pub ended: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A trtllm-serve with this model.
    Engine(String),
    /// The orchestrator of disaggregated serving. Its workers are found as engines.
    Orchestrator,
    /// A process of trtllm-serve that does not answer yet, and why.
    NotReady(String),
    /// Another server, with a description.
    Other(String),
    /// A trtllm-serve that must not be read, and why.
    Left(String),
    /// Why the server that tells of the others does not do so.
    Unknown(String),
}

/// Asks every address where a trtllm-serve may be: the `ports` of this host, the `known` servers, and those that a process
/// names. The findings have this order. Only the servers that a process names are limited in number, because anybody may
/// start a process called trtllm-serve. Ports without a listener are left out, unless a process of trtllm-serve names them.
pub async fn search(ports: Vec<u16>, known: Vec<String>) -> Vec<FoundServer> {
    let named = tokio::task::spawn_blocking(|| processes(Path::new("/proc"))).await.unwrap_or_default();
    let mut asked = JoinSet::new();
    for (order, (target, configured)) in places(ports, known, &named).into_iter().enumerate() {
        let process = named.iter().find(|server| server.target == target).cloned();
        asked.spawn(async move {
            let orchestrator = process.as_ref().map(|server| server.orchestrator);
            let identity = identify(&target, orchestrator).await?;
            Some((order, FoundServer { target, configured, identity, pod: None }))
        });
    }
    let mut findings = Vec::new();
    while let Some(answer) = asked.join_next().await {
        findings.extend(answer.ok().flatten());
    }
    findings.sort_by_key(|(order, _)| *order);
    findings.into_iter().map(|(_, finding)| finding).collect()
}

/// Each address to ask, once, and whether it has one of `ports`.
fn places(ports: Vec<u16>, known: Vec<String>, named: &[NamedServer]) -> Vec<(String, bool)> {
    let mut taken = HashSet::new();
    let mut places: Vec<(String, bool)> = ports.into_iter().map(|port| (local(port), true)).collect();
    places.extend(known.into_iter().map(|target| (target, false)));
    places.retain(|(target, _)| taken.insert(target.clone()));
    let others = named.iter().map(|server| &server.target).filter(|target| taken.insert((*target).clone()));
    places.extend(others.take(MAX_SERVERS).map(|target| (target.clone(), false)));
    places
}

/// What answers at an address. `orchestrator`: whether its command line is that of an orchestrator, if there is a command line of
/// trtllm-serve for the address. `None` if there is none, and nothing listens there.
pub(crate) async fn identify(target: &str, orchestrator: Option<bool>) -> Option<Identity> {
    let is_expected = orchestrator.is_some();
    match timeout(TIMEOUT, pin!(ask(target, orchestrator == Some(true)))).await {
        Ok(Ok(identity)) => Some(identity),
        Ok(Err(SourceError::Connect { .. })) | Err(_) if !is_expected => None,
        Ok(Err(error)) if !is_expected => Some(Identity::Other(error.to_string())),
        Ok(Err(error)) => Some(Identity::NotReady(error.to_string())),
        Err(_) => Some(Identity::NotReady("it does not answer".to_owned())),
    }
}

fn local(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Asks for the list of models, in which `owned_by` shows what kind of server it is. vLLM and others answer the same
/// paths, and would count a read of their `/metrics` as a scrape. An orchestrator answers with the models of a worker,
/// so it would look like an engine. `orchestrator`: the command line of the process is that of an orchestrator.
async fn ask(target: &str, orchestrator: bool) -> Result<Identity, SourceError> {
    #[derive(Deserialize)]
    struct Models {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        id: String,
        owned_by: String,
    }
    let mut client = HttpClient::new(TargetServer::plain(target.to_owned())).with_max_body(MAX_ANSWER);
    if orchestrator && is_orchestrator(&mut client).await? {
        return Ok(Identity::Orchestrator);
    }
    let models: Result<Models, _> = match client.read("/v1/models").await {
        Ok(answer) => serde_json::from_slice(answer),
        Err(error @ SourceError::HttpStatus { .. }) => {
            // It may be an orchestrator that has no worker to ask, or is too old to have this path.
            return if is_orchestrator(&mut client).await? { Ok(Identity::Orchestrator) } else { Err(error) };
        }
        Err(error) => return Err(error),
    };
    let model = models.ok().and_then(|models| models.data.into_iter().next());
    Ok(match model {
        Some(Model { id, owned_by }) if owned_by == "tensorrt_llm" => match is_orchestrator(&mut client).await? {
            true => Identity::Orchestrator,
            false => Identity::Engine(short(&id)),
        },
        Some(Model { owned_by, .. }) => Identity::Other(format!("its models are owned by {:?}", short(&owned_by))),
        None => Identity::Other("it has no list of models".to_owned()),
    })
}

/// Whether the server lists its workers and has no statistics of an engine. A `HEAD` request does not drain an engine.
async fn is_orchestrator(client: &mut HttpClient) -> Result<bool, SourceError> {
    let told = match client.read_at_most(MAX_FACTS, "/cluster_info").await {
        Ok(body) => parse_cluster_info(body).is_some(),
        Err(error) if error.is_missing() => false,
        // A server that is busy or starts answers the next search.
        Err(error) => return Err(error),
    };
    if !told {
        return Ok(false);
    }
    match client.head("/metrics").await {
        Err(SourceError::HttpStatus { status: 404 | 410, .. }) => Ok(true),
        // An engine has the path for another method.
        Err(SourceError::HttpStatus { status: 405 | 501, .. }) => Ok(false),
        Ok(_) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A model's name as a label value. If the name is a path, only its last folder.
pub(super) fn short(id: &str) -> String {
    let name = id.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    name.chars().take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_search_that_is_dropped_closes_its_connections() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}", listener.local_addr().unwrap());
        let (mut stream, _) = tokio::select! {
            _ = search(Vec::new(), vec![target]) => panic!("nobody answered"),
            accepted = listener.accept() => accepted.unwrap(),
        };
        let closed = async move { tokio::io::copy(&mut stream, &mut tokio::io::sink()).await };
        assert!(tokio::time::timeout(TIMEOUT / 2, closed).await.is_ok(), "before the timeout of a server");
    }

    #[test]
    fn many_processes_with_the_name_of_trtllm_serve_hide_no_configured_or_known_server() {
        let known: Vec<String> = (0..70).map(|host| format!("http://10.1.0.{host}:8000")).collect();
        let named = (0..200).map(|host| format!("http://10.0.0.{host}:8000")).chain([local(8000)]);
        let named: Vec<NamedServer> = named.map(|target| NamedServer { target, orchestrator: false }).collect();
        let places = places(vec![8000, 9000, 8000], [&known[..], &[local(8000)]].concat(), &named);
        assert_eq!(places[..2], [(local(8000), true), (local(9000), true)]);
        assert!(places[2..72].iter().zip(&known).all(|((target, configured), known)| target == known && !configured));
        assert_eq!(places.len(), 2 + 70 + MAX_SERVERS);
    }

    #[test]
    fn a_model_that_is_a_path_is_named_by_its_last_folder() {
        assert_eq!(short("/models/llama-3-8b/"), "llama-3-8b");
        assert_eq!(short("meta-llama/Llama-3.1-8B"), "Llama-3.1-8B");
        assert_eq!(short(&"x".repeat(100)).len(), 64);
    }
}
