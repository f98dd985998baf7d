//! Finds the trtllm-serve of this host or pod. It asks only ports where one is expected, because any other port may belong to
//! something that an unexpected request disturbs, and only for what drains no statistics.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use tokio::task::JoinSet;

use super::SourceError;
use super::http_client::HttpClient;
use super::server::Server;

/// trtllm-serve's default.
pub const USUAL_PORT: u16 = 8000;
/// Between two searches.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// A server that is not ready is asked again by the next search.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A list of models is short.
const MAX_ANSWER: usize = 64 << 10;
/// Servers that are asked in one search.
const MAX_SERVERS: usize = 64;
/// Bytes read of a command line.
const MAX_COMMAND: usize = 16 << 10;

/// What one place answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// `http://HOST:PORT`
    pub target: String,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A trtllm-serve with this model.
    Engine(String),
    /// A process of trtllm-serve that does not answer yet, and why.
    NotReady(String),
    /// Something else, and what.
    Other(String),
}

/// Asks every place where a trtllm-serve may be. Ports without a listener are left out, unless a process of trtllm-serve names them.
pub async fn search(ports: Vec<u16>) -> Vec<Finding> {
    let processes = tokio::task::spawn_blocking(|| processes(Path::new("/proc"))).await.unwrap_or_default();
    let mut places: BTreeMap<String, bool> = ports.into_iter().map(|port| (local(port), false)).collect();
    places.extend(processes.into_iter().map(|target| (target, true)));
    let mut asked = JoinSet::new();
    for (target, has_process) in places.into_iter().take(MAX_SERVERS) {
        asked.spawn(async move { Some(Finding { verdict: verdict(&target, has_process).await?, target }) });
    }
    let mut findings = Vec::new();
    while let Some(answer) = asked.join_next().await {
        findings.extend(answer.ok().flatten());
    }
    findings.sort_by(|one: &Finding, other| one.target.cmp(&other.target));
    findings
}

/// `None` if nothing listens there, and nothing has to.
async fn verdict(target: &str, has_process: bool) -> Option<Verdict> {
    match tokio::time::timeout(TIMEOUT, ask(target)).await {
        Ok(Ok(verdict)) => Some(verdict),
        Ok(Err(SourceError::Connect { .. })) | Err(_) if !has_process => None,
        Ok(Err(error)) if !has_process => Some(Verdict::Other(error.to_string())),
        Ok(Err(error)) => Some(Verdict::NotReady(error.to_string())),
        Err(_) => Some(Verdict::NotReady("it does not answer".to_owned())),
    }
}

fn local(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Who serves the models. vLLM and others answer the same paths, and would count a read of their `/metrics` as a scrape.
async fn ask(target: &str) -> Result<Verdict, SourceError> {
    #[derive(Deserialize)]
    struct Models {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        id: String,
        owned_by: String,
    }
    let mut client = HttpClient::new(Server::plain(target.to_owned())).with_max_body(MAX_ANSWER);
    let answer = client.read(Method::GET, "/v1/models").await?;
    let models: Result<Models, _> = serde_json::from_slice(answer);
    let model = models.ok().and_then(|models| models.data.into_iter().next());
    Ok(match model {
        Some(Model { id, owned_by }) if owned_by == "tensorrt_llm" => Verdict::Engine(short(&id)),
        Some(Model { owned_by, .. }) => Verdict::Other(format!("its models are owned by {:?}", short(&owned_by))),
        None => Verdict::Other("it has no list of models".to_owned()),
    })
}

/// As a label value. A model may be a path: its last folder names it.
fn short(id: &str) -> String {
    let name = id.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    name.chars().take(64).collect()
}

/// The addresses of all processes of trtllm-serve that may be seen and share our network.
fn processes(proc: &Path) -> Vec<String> {
    let network = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let ours = network(&proc.join("self"));
    let all = fs::read_dir(proc).into_iter().flatten().filter_map(Result::ok);
    let numbered = all.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let mut found: Vec<String> = numbered
        .filter_map(|entry| {
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            let target = target_of(&command[..command.len().min(MAX_COMMAND)])?;
            // A container's own network: its addresses are not ours. Another user's is unknown, and most hosts have one.
            let theirs = network(&entry.path());
            (theirs.is_none() || theirs == ours).then_some(target)
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The address in the command line of a trtllm-serve, whose arguments end with zero bytes.
fn target_of(command: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(command);
    let arguments: Vec<&str> = text.split('\0').filter(|argument| !argument.is_empty()).collect();
    // Behind an interpreter, and maybe its options.
    let is_server = |argument: &&str| {
        argument.rsplit('/').next() == Some("trtllm-serve") || *argument == "tensorrt_llm.commands.serve"
    };
    let at = arguments.iter().take(4).position(is_server)?;
    let value = |option: &str| {
        let mut rest = arguments[at..].iter();
        while let Some(argument) = rest.next() {
            if argument == &option {
                return rest.next().copied();
            }
            if let Some(value) = argument.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
        }
        None
    };
    let port = value("--port").map_or(Some(USUAL_PORT), |port| port.parse().ok())?;
    Some(match value("--host") {
        None | Some("localhost" | "0.0.0.0" | "::" | "127.0.0.1") => local(port),
        Some(host) if host.contains(':') => format!("http://[{host}]:{port}"),
        Some(host) => format!("http://{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_server_is_in_its_command_line() {
        let of = |arguments: &[&str]| target_of(arguments.join("\0").as_bytes());
        let at = |address: &str| Some(format!("http://{address}"));
        assert_eq!(of(&["trtllm-serve", "/models/llama"]), at("127.0.0.1:8000"));
        assert_eq!(
            of(&[
                "/usr/bin/python3",
                "/usr/local/bin/trtllm-serve",
                "serve",
                "m",
                "--port",
                "9000",
                "--host",
                "0.0.0.0"
            ]),
            at("127.0.0.1:9000")
        );
        assert_eq!(of(&["python3", "-m", "tensorrt_llm.commands.serve", "m", "--port=9001"]), at("127.0.0.1:9001"));
        assert_eq!(of(&["trtllm-serve", "m", "--host=10.0.0.7"]), at("10.0.0.7:8000"));
        assert_eq!(of(&["trtllm-serve", "m", "--host", "fd00::7"]), at("[fd00::7]:8000"));
        for other in [
            &["vllm", "serve", "m"][..],
            &["vim", "a", "b", "c", "trtllm-serve"],
            &["trtllm-serve", "--port", "x"],
            &[],
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_model_that_is_a_path_is_named_by_its_last_folder() {
        assert_eq!(short("/models/llama-3-8b/"), "llama-3-8b");
        assert_eq!(short("meta-llama/Llama-3.1-8B"), "Llama-3.1-8B");
        assert_eq!(short(&"x".repeat(100)).len(), 64);
    }
}
