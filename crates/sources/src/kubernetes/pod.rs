//! Decides from a pod's object whether it serves TensorRT-LLM, at which address, and what keeps it from serving. Pure. The structs have
//! only those fields of the core/v1 API that are used.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use trtllm_records::PodTrouble;
use trtllm_records::gpu::PodName;
use trtllm_records::timestamp::parse_timestamp;

use crate::discovery::command::ServeCommand;
use crate::discovery::{FoundPod, short};
use crate::server::{DEFAULT_PORT, parse_port};

/// Sets the port of the server, whatever else tells it.
const PORT: &str = "trtllm-exporter.io/port";
/// `false`: something else reads the engine of this pod.
const SCRAPE: &str = "trtllm-exporter.io/scrape";
/// The name of this exporter's containers and of its image.
const EXPORTER: &str = "trtllm-exporter";
/// Parts of the names of images that contain a trtllm-serve.
const IMAGES: [&str; 2] = ["trtllm-serve", "tensorrt-llm"];
/// Names of container ports on which a model server answers.
const PORT_NAMES: [&str; 6] = ["trtllm-serve", "serve", "http", "http-serve", "api", "openai"];
/// The most words of a command line that are searched for the program: it may follow a script of a shell.
const MAX_WORDS: usize = 1000;
/// The longest text of Kubernetes that is shown, in characters.
const MAX_MESSAGE: usize = 200;
/// For this time after the start of a container, Kubernetes may still report the end of the one before. In microseconds.
const RESTART_MICROS: i64 = 10_000_000;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    uid: String,
    pub(super) resource_version: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    readiness_gates: Vec<Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    name: String,
    image: String,
    command: Vec<String>,
    args: Vec<String>,
    ports: Vec<ContainerPort>,
    startup_probe: Probe,
    readiness_probe: Probe,
    liveness_probe: Probe,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerPort {
    name: String,
    container_port: u16,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Probe {
    http_get: Option<HttpGet>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct HttpGet {
    /// A number, or the name of a container port.
    port: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    reason: String,
    message: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
    /// Null if nobody has set it.
    last_transition_time: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    ready: bool,
    started: Option<bool>,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
    running: Option<Running>,
    terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Running {
    started_at: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    reason: String,
    exit_code: i64,
}

/// A pod that serves TensorRT-LLM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServingPod {
    pub(super) pod: FoundPod,
    /// `http://IP:PORT`, once the pod has an address.
    pub(super) target: Option<String>,
    /// Its command line starts an orchestrator.
    pub(super) orchestrator: bool,
    /// Why the exporter must not read it.
    pub(super) left: Option<String>,
}

/// `None` if the pod serves no TensorRT-LLM, or has finished. `selected`: the user's label selector has chosen the pod. `port`: the
/// port of all pods that do not tell their own.
pub(super) fn serving(pod: Pod, selected: bool, port: Option<u16>) -> Option<ServingPod> {
    let Pod { metadata, spec, status } = &pod;
    let containers = &spec.containers;
    let words: Vec<Vec<&str>> = containers.iter().map(words).collect();
    let commands: Vec<Option<ServeCommand>> = words.iter().map(|words| ServeCommand::find(words, MAX_WORDS)).collect();
    let by_image = || containers.iter().position(|container| IMAGES.iter().any(|part| container.image.contains(part)));
    let at = commands.iter().position(Option::is_some).or_else(by_image).or(selected.then_some(0))?;
    let (container, command) = (containers.get(at)?, commands[at]);
    let trouble = trouble(status, &container.name, spec.readiness_gates.is_empty());
    let is_terminating = metadata.deletion_timestamp.is_some();
    // A pod that is being deleted serves until its container has ended.
    if status.phase == "Succeeded"
        || command.is_some_and(|command| command.is_mpi_worker())
        || is_terminating && trouble.is_some()
    {
        return None;
    }
    let ended = status.phase == "Failed";
    let port = annotated_port(metadata)
        .or(port)
        .or_else(|| command?.value("--port").and_then(parse_port))
        .or_else(|| named_port(container))
        .or_else(|| probed_port(container))
        .unwrap_or(DEFAULT_PORT);
    let address = match status.pod_ip.contains(':') {
        true => format!("[{}]", status.pod_ip),
        false => status.pod_ip.clone(),
    };
    let index = metadata.labels.get("apps.kubernetes.io/pod-index").map(String::as_str);
    Some(ServingPod {
        left: other_reader(&pod, port),
        // The address of a pod that has ended may be that of another one now.
        target: (!status.pod_ip.is_empty() && !ended).then(|| format!("http://{address}:{port}")),
        orchestrator: command.is_some_and(|command| command.is_orchestrator()),
        pod: FoundPod {
            uid: metadata.uid.clone(),
            name: PodName { namespace: metadata.namespace.clone(), pod: metadata.name.clone() },
            node: spec.node_name.clone(),
            replica: index.or_else(|| metadata.name.rsplit('-').next()).unwrap_or_default().to_owned(),
            model: command.filter(|command| !command.is_orchestrator()).and_then(|command| command.model()).map(short),
            trouble,
            ended,
        },
    })
}

/// The words of a container's command line. A script of a shell is split at spaces.
fn words(container: &Container) -> Vec<&str> {
    let arguments = container.command.iter().chain(&container.args);
    let words = arguments.flat_map(|argument| argument.split_ascii_whitespace());
    words.map(|word| word.trim_matches(['"', '\'', ';'])).filter(|word| !word.is_empty()).take(MAX_WORDS).collect()
}

fn annotated_port(metadata: &Metadata) -> Option<u16> {
    parse_port(metadata.annotations.get(PORT)?)
}

fn named_port(container: &Container) -> Option<u16> {
    let of = |name: &&str| container.ports.iter().find(|port| port.name == **name);
    PORT_NAMES.iter().find_map(of).map(|port| port.container_port)
}

/// The port of the first HTTP probe.
fn probed_port(container: &Container) -> Option<u16> {
    let probes = [&container.startup_probe, &container.readiness_probe, &container.liveness_probe];
    let port = &probes.into_iter().find_map(|probe| probe.http_get.as_ref())?.port;
    match port.as_str() {
        Some(name) => container.ports.iter().find(|port| port.name == name).map(|port| port.container_port),
        None => port.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0),
    }
}

/// Why another program reads the engine of the pod. Each record is given to one reader only.
fn other_reader(Pod { metadata, spec, .. }: &Pod, port: u16) -> Option<String> {
    let is_exporter = |container: &&Container| {
        let image = container.image.split('@').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        container.name == EXPORTER || image.split(':').next() == Some(EXPORTER)
    };
    if let Some(container) = spec.containers.iter().chain(&spec.init_containers).find(is_exporter) {
        return Some(format!("its container {} reads the engine", container.name));
    }
    if metadata.labels.get(EXPORTER).is_some_and(|label| label == "sidecar") {
        return Some(format!("its label {EXPORTER}=sidecar says that a sidecar reads the engine"));
    }
    let annotation = |name: &str| metadata.annotations.get(name).map(String::as_str);
    if annotation(SCRAPE) == Some("false") {
        return Some(format!("its annotation {SCRAPE} is \"false\""));
    }
    let is_scraped = annotation("prometheus.io/scrape") == Some("true")
        && annotation("prometheus.io/path").unwrap_or("/metrics") == "/metrics"
        && annotation("prometheus.io/port").is_none_or(|scraped| parse_port(scraped) == Some(port));
    is_scraped.then(|| {
        "its annotation prometheus.io/scrape lets Prometheus read /metrics, which takes the records; remove it, or set \
         prometheus.io/path to /prometheus/metrics"
            .to_owned()
    })
}

/// Why the container cannot serve. `only_containers`: nothing but its containers makes the pod ready.
fn trouble(status: &Status, container: &str, only_containers: bool) -> Option<PodTrouble> {
    let with_message = |reason: &str, message: &str| {
        let message: String = message.chars().filter(|letter| !letter.is_control()).take(MAX_MESSAGE).collect();
        if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") }
    };
    let is_down = matches!(status.phase.as_str(), "Failed" | "Unknown") || !status.reason.is_empty();
    if is_down && !status.reason.is_empty() {
        return Some(PodTrouble::Down(with_message(&status.reason, &status.message)));
    }
    let of_container = status.container_statuses.iter().find(|known| known.name == container);
    let Some(ContainerStatus { ready, started, state, last_state, .. }) = of_container else {
        let unscheduled = status
            .conditions
            .iter()
            .find(|condition| condition.r#type == "PodScheduled" && condition.status == "False");
        return Some(match unscheduled {
            _ if is_down => PodTrouble::Down(status.phase.clone()),
            Some(condition) => PodTrouble::Loading(with_message(&condition.reason, &condition.message)),
            None => PodTrouble::Loading("Pending".to_owned()),
        });
    };
    let last = last_state.terminated.as_ref().map(end_of);
    if let Some(end) = &state.terminated {
        return Some(PodTrouble::Down(end_of(end)));
    }
    if let Some(Waiting { reason }) = &state.waiting {
        let failed_init = status.init_container_statuses.iter().find_map(|init| {
            let waiting = init.state.waiting.as_ref().filter(|waiting| waiting.reason.contains("BackOff"))?;
            Some(format!("{} of init container {}", waiting.reason, init.name))
        });
        let why = failed_init.unwrap_or_else(|| reason.clone());
        return Some(match last {
            Some(last) if reason == "CrashLoopBackOff" => PodTrouble::Down(format!("{why} after {last}")),
            _ if why.starts_with("CrashLoopBackOff") => PodTrouble::Down(why),
            _ => PodTrouble::Loading(why),
        });
    }
    if is_down {
        return Some(PodTrouble::Down(status.phase.clone()));
    }
    let is = |kind: &str, value: &str| status.conditions.iter().any(|it| it.r#type == kind && it.status == value);
    let Some(running) = &state.running else { return Some(PodTrouble::Loading("Pending".to_owned())) };
    match (ready, last_state.terminated.as_ref()) {
        // If a kubelet no longer reports, the control plane changes only the condition Ready of its pods.
        (true, _) if only_containers && is("Ready", "False") && is("ContainersReady", "True") => {
            Some(PodTrouble::Down("the node is not ready".to_owned()))
        }
        (true, _) => None,
        // The last end stays in the status for good.
        (false, Some(_)) if was_ready(running, status) => None,
        (false, Some(last)) => {
            let why = format!("started again after {}", end_of(last));
            Some(if last.exit_code == 0 { PodTrouble::Loading(why) } else { PodTrouble::Restarted(why) })
        }
        (false, None) => {
            (*started == Some(false)).then(|| PodTrouble::Loading("the startup probe has not succeeded yet".to_owned()))
        }
    }
}

/// Whether a container that is not ready has been ready since its start. Then it does not load, and the server itself says what is wrong.
/// False if a time is missing.
fn was_ready(running: &Running, status: &Status) -> bool {
    let micros = |time: &Option<String>| Some(parse_timestamp(time.as_ref()?)?.micros);
    let unready = status.conditions.iter().find(|it| it.r#type == "ContainersReady" && it.status == "False");
    let changed = unready.and_then(|condition| micros(&condition.last_transition_time));
    changed.zip(micros(&running.started_at)).is_some_and(|(changed, started)| changed > started + RESTART_MICROS)
}

fn end_of(Terminated { reason, exit_code }: &Terminated) -> String {
    if reason.is_empty() { format!("exit code {exit_code}") } else { format!("{reason}, exit code {exit_code}") }
}

#[cfg(test)]
mod tests;
