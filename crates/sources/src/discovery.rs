//! Finds the trtllm-serve of this host or pod. It asks only ports where one is expected, because any other port may belong to
//! something that an unexpected request disturbs, and only for what drains no statistics.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use tokio::task::JoinSet;

use super::SourceError;
use super::http_client::HttpClient;
use super::server::TargetServer;

/// trtllm-serve's default.
pub const USUAL_PORT: u16 = 8000;
/// Between two searches.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// A server that is not ready is asked again by the next search.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A list of models is short.
const MAX_ANSWER: usize = 64 << 10;
/// Servers that are asked in one search only because a process names them.
const MAX_SERVERS: usize = 64;
/// Bytes read of a command line.
const MAX_COMMAND: u64 = 16 << 10;
/// Bytes of the name of a host.
const MAX_HOST: usize = 253;

/// What one place answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundServer {
    /// `http://HOST:PORT`
    pub target: String,
    /// It is at one of the ports that were asked for.
    pub configured: bool,
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

/// Asks every place where a trtllm-serve may be: these ports of this host, the `known` servers, and those that a process names.
/// The findings are in this order, and only the last ones are limited: anybody may start processes with this name. Ports without
/// a listener are left out, unless a process of trtllm-serve names them.
pub async fn search(ports: Vec<u16>, known: Vec<String>) -> Vec<FoundServer> {
    let named = tokio::task::spawn_blocking(|| processes(Path::new("/proc"))).await.unwrap_or_default();
    let mut asked = JoinSet::new();
    for (order, (target, configured)) in places(ports, known, &named).into_iter().enumerate() {
        let has_process = named.contains(&target);
        asked.spawn(async move {
            let verdict = verdict(&target, has_process).await?;
            Some((order, FoundServer { target, configured, verdict }))
        });
    }
    let mut findings = Vec::new();
    while let Some(answer) = asked.join_next().await {
        findings.extend(answer.ok().flatten());
    }
    findings.sort_by_key(|(order, _)| *order);
    findings.into_iter().map(|(_, finding)| finding).collect()
}

/// Whom to ask, each once, and whether it is at one of `ports`.
fn places(ports: Vec<u16>, known: Vec<String>, named: &[String]) -> Vec<(String, bool)> {
    let mut taken = HashSet::new();
    let mut places: Vec<(String, bool)> = ports.into_iter().map(|port| (local(port), true)).collect();
    places.extend(known.into_iter().map(|target| (target, false)));
    places.retain(|(target, _)| taken.insert(target.clone()));
    let others = named.iter().filter(|target| !taken.contains(*target)).take(MAX_SERVERS);
    places.extend(others.map(|target| (target.clone(), false)));
    places
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
    let mut client = HttpClient::new(TargetServer::plain(target.to_owned())).with_max_body(MAX_ANSWER);
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
            let mut command = Vec::new();
            fs::File::open(entry.path().join("cmdline")).ok()?.take(MAX_COMMAND).read_to_end(&mut command).ok()?;
            let target = target_of(&command)?;
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
    let port = value("--port").map_or(Some(USUAL_PORT), port)?;
    let host = value("--host").map_or(Some("127.0.0.1".to_owned()), host)?;
    Some(format!("http://{host}:{port}"))
}

/// Anybody may start a process with these arguments, so they become part of a URL only as a number.
fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// An IP address or a DNS name, as in a URL; `None` for anything else, which could be a path or another port.
fn host(text: &str) -> Option<String> {
    let is_part = |part: &str| {
        let letters = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        (1..=63).contains(&part.len()) && letters && !part.starts_with('-') && !part.ends_with('-')
    };
    // A number alone is another spelling of an address.
    let ends_in_number = || text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    match text.parse() {
        Ok(address @ (IpAddr::V4(_) | IpAddr::V6(_))) if address.is_unspecified() => Some("127.0.0.1".to_owned()),
        Ok(IpAddr::V4(address)) => Some(address.to_string()),
        Ok(IpAddr::V6(address)) => Some(format!("[{address}]")),
        Err(_) if text == "localhost" => Some("127.0.0.1".to_owned()),
        Err(_) => {
            (text.len() <= MAX_HOST && text.split('.').all(is_part) && !ends_in_number()).then(|| text.to_owned())
        }
    }
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
    fn arguments_of_a_process_that_are_not_a_host_and_a_port_are_no_address() {
        for host in [
            "127.0.0.1/admin/shutdown?x=",
            "127.0.0.1:80",
            "127.0.0.1#",
            "user@127.0.0.1",
            "[::1]:80",
            "fe80::1%eth0",
            "a b",
            "a\r\nX: y",
            "h\u{e9}",
            "-a",
            "a..b",
            ".",
            "",
            "2130706433",
            "127.1",
            &"a.".repeat(200),
            &"a".repeat(64),
        ] {
            let command = format!("trtllm-serve\0m\0--host={host}\0--port\08000");
            assert_eq!(target_of(command.as_bytes()), None, "{host:?}");
        }
        for port in ["0", "65536", "99999", "+80", "-1", "80/x", "80?", ""] {
            assert_eq!(target_of(format!("trtllm-serve\0--port={port}").as_bytes()), None, "{port:?}");
        }
        for (host, expected) in
            [("gpu_7.example-1.com", "gpu_7.example-1.com"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")]
        {
            let target = target_of(format!("trtllm-serve\0--host={host}\0--port=9").as_bytes());
            assert_eq!(target, Some(format!("http://{expected}:9")));
        }
    }

    #[test]
    fn many_processes_with_the_name_of_trtllm_serve_hide_no_configured_or_known_server() {
        let known: Vec<String> = (0..70).map(|host| format!("http://10.1.0.{host}:8000")).collect();
        let named: Vec<String> =
            (0..200).map(|host| format!("http://10.0.0.{host}:8000")).chain([local(8000)]).collect();
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
