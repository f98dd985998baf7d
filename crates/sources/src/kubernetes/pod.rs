//! Decides from a pod's object whether it serves TensorRT-LLM, at which address, and what keeps it from serving. Pure.

use serde_json::Value;
use trtllm_records::PodTrouble;
use trtllm_records::gpu::PodName;
use trtllm_records::timestamp::parse_timestamp;

use super::PodSelection;
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

/// The object of a pod in core/v1. What a server leaves out is null, and so is what has another type.
pub(super) type Pod = Value;

/// The text at a path such as `/status/phase`. Empty if there is none.
pub(super) fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The value at a path, unless it is null.
fn known<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    value.pointer(path).filter(|value| !value.is_null())
}

fn list<'v>(value: &'v Value, path: &str) -> &'v [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The first of these objects whose text at `path` is this one.
fn find<'v>(objects: &'v [Value], path: &str, wanted: &str) -> Option<&'v Value> {
    objects.iter().find(|object| text(object, path) == wanted)
}

/// A condition of the pod, if its status is this one.
fn condition<'v>(pod: &'v Pod, kind: &str, status: &str) -> Option<&'v Value> {
    find(list(pod, "/status/conditions"), "/type", kind).filter(|condition| text(condition, "/status") == status)
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

/// `None` if the pod serves no TensorRT-LLM, or has finished. With a label selector of the user, it need not show what it runs.
pub(super) fn serving(pod: &Pod, selection: &PodSelection) -> Option<ServingPod> {
    let containers = list(pod, "/spec/containers");
    let words: Vec<Vec<&str>> = containers.iter().map(words).collect();
    let commands: Vec<Option<ServeCommand>> = words.iter().map(|words| ServeCommand::find(words, MAX_WORDS)).collect();
    let has_image = |container: &Value| IMAGES.iter().any(|part| text(container, "/image").contains(part));
    let by_image = || containers.iter().position(has_image);
    let at = commands.iter().position(Option::is_some).or_else(by_image).or(selection.selector.as_ref().map(|_| 0))?;
    let (container, command) = (containers.get(at)?, commands[at]);
    let trouble = trouble(pod, text(container, "/name"));
    let is_terminating = known(pod, "/metadata/deletionTimestamp").is_some();
    let phase = text(pod, "/status/phase");
    // A pod that is being deleted serves until its container has ended.
    if phase == "Succeeded"
        || command.is_some_and(|command| command.is_mpi_worker())
        || is_terminating && trouble.is_some()
    {
        return None;
    }
    let ended = phase == "Failed";
    let port = parse_port(annotation(pod, PORT))
        .or(selection.port)
        .or_else(|| command?.value("--port").and_then(parse_port))
        .or_else(|| PORT_NAMES.iter().find_map(|name| named_port(container, name)))
        .or_else(|| probed_port(container))
        .unwrap_or(DEFAULT_PORT);
    let ip = text(pod, "/status/podIP");
    let address = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    let [name, namespace] = ["/metadata/name", "/metadata/namespace"].map(|path| text(pod, path).to_owned());
    let index = pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"].as_str();
    Some(ServingPod {
        left: other_reader(pod, port),
        // The address of a pod that has ended may be that of another one now.
        target: (!ip.is_empty() && !ended).then(|| format!("http://{address}:{port}")),
        orchestrator: command.is_some_and(|command| command.is_orchestrator()),
        pod: FoundPod {
            uid: text(pod, "/metadata/uid").to_owned(),
            replica: index.or_else(|| name.rsplit('-').next()).unwrap_or_default().to_owned(),
            name: PodName { namespace, pod: name },
            node: text(pod, "/spec/nodeName").to_owned(),
            model: command.filter(|command| !command.is_orchestrator()).and_then(|command| command.model()).map(short),
            trouble,
            ended,
        },
    })
}

/// The words of a container's command line. A script of a shell is split at spaces.
fn words(container: &Value) -> Vec<&str> {
    let arguments = list(container, "/command").iter().chain(list(container, "/args")).filter_map(Value::as_str);
    let words = arguments.flat_map(|argument| argument.split_ascii_whitespace());
    words.map(|word| word.trim_matches(['"', '\'', ';'])).filter(|word| !word.is_empty()).take(MAX_WORDS).collect()
}

fn annotation<'p>(pod: &'p Pod, name: &str) -> &'p str {
    pod["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

/// The container port of this name.
fn named_port(container: &Value, name: &str) -> Option<u16> {
    find(list(container, "/ports"), "/name", name).and_then(|port| port_of(&port["containerPort"]))
}

/// The port of the first HTTP probe: a number, or the name of a container port.
fn probed_port(container: &Value) -> Option<u16> {
    let probes = ["startupProbe", "readinessProbe", "livenessProbe"].iter();
    let port = &probes.map(|probe| &container[probe]["httpGet"]).find(|get| get.is_object())?["port"];
    port.as_str().map_or_else(|| port_of(port), |name| named_port(container, name))
}

fn port_of(port: &Value) -> Option<u16> {
    port.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

/// Why another program reads the engine of the pod. Each record is given to one reader only.
fn other_reader(pod: &Pod, port: u16) -> Option<String> {
    let is_exporter = |container: &&Value| {
        let image = text(container, "/image").split('@').next().unwrap_or_default().rsplit('/').next();
        text(container, "/name") == EXPORTER || image.is_some_and(|image| image.split(':').next() == Some(EXPORTER))
    };
    let mut containers = list(pod, "/spec/containers").iter().chain(list(pod, "/spec/initContainers"));
    if let Some(container) = containers.find(is_exporter) {
        return Some(format!("its container {} reads the engine", text(container, "/name")));
    }
    if pod["metadata"]["labels"][EXPORTER] == "sidecar" {
        return Some(format!("its label {EXPORTER}=sidecar says that a sidecar reads the engine"));
    }
    if annotation(pod, SCRAPE) == "false" {
        return Some(format!("its annotation {SCRAPE} is \"false\""));
    }
    let [path, scraped] = ["prometheus.io/path", "prometheus.io/port"].map(|name| annotation(pod, name));
    let is_scraped = annotation(pod, "prometheus.io/scrape") == "true"
        && matches!(path, "" | "/metrics")
        && (scraped.is_empty() || parse_port(scraped) == Some(port));
    is_scraped.then(|| {
        "its annotation prometheus.io/scrape lets Prometheus read /metrics, which takes the records; remove it, or set \
         prometheus.io/path to /prometheus/metrics"
            .to_owned()
    })
}

/// Why the container of this name cannot serve.
fn trouble(pod: &Pod, container: &str) -> Option<PodTrouble> {
    let with_message = |of: &Value| {
        let (reason, message) = (text(of, "/reason"), text(of, "/message"));
        let message: String = message.chars().filter(|letter| !letter.is_control()).take(MAX_MESSAGE).collect();
        if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") }
    };
    let (status, phase) = (&pod["status"], text(pod, "/status/phase"));
    if !text(status, "/reason").is_empty() {
        return Some(PodTrouble::Down(with_message(status)));
    }
    let is_down = matches!(phase, "Failed" | "Unknown");
    let Some(of_container) = find(list(status, "/containerStatuses"), "/name", container) else {
        return Some(match condition(pod, "PodScheduled", "False") {
            _ if is_down => PodTrouble::Down(phase.to_owned()),
            Some(unscheduled) => PodTrouble::Loading(with_message(unscheduled)),
            None => PodTrouble::Loading("Pending".to_owned()),
        });
    };
    let last = known(of_container, "/lastState/terminated");
    if let Some(end) = known(of_container, "/state/terminated") {
        return Some(PodTrouble::Down(end_of(end)));
    }
    if known(of_container, "/state/waiting").is_some() {
        let waiting = |status: &Value| text(status, "/state/waiting/reason").to_owned();
        let failed_init = list(status, "/initContainerStatuses").iter().find(|init| waiting(init).contains("BackOff"));
        let failed_init =
            failed_init.map(|init| format!("{} of init container {}", waiting(init), text(init, "/name")));
        let reason = waiting(of_container);
        let why = failed_init.unwrap_or_else(|| reason.clone());
        return Some(match last {
            Some(last) if reason == "CrashLoopBackOff" => PodTrouble::Down(format!("{why} after {}", end_of(last))),
            _ if why.starts_with("CrashLoopBackOff") => PodTrouble::Down(why),
            _ => PodTrouble::Loading(why),
        });
    }
    if is_down {
        return Some(PodTrouble::Down(phase.to_owned()));
    }
    let Some(running) = known(of_container, "/state/running") else {
        return Some(PodTrouble::Loading("Pending".to_owned()));
    };
    if of_container["ready"] == true {
        // If a kubelet no longer reports, the control plane changes only the condition Ready of its pods.
        let is_lost = list(pod, "/spec/readinessGates").is_empty()
            && condition(pod, "Ready", "False").is_some()
            && condition(pod, "ContainersReady", "True").is_some();
        return is_lost.then(|| PodTrouble::Down("the node is not ready".to_owned()));
    }
    match last {
        // The last end stays in the status for good.
        Some(_) if was_ready(running, pod) => None,
        Some(last) => {
            let why = format!("started again after {}", end_of(last));
            Some(if exit_code(last) == 0 { PodTrouble::Loading(why) } else { PodTrouble::Restarted(why) })
        }
        None => (of_container["started"] == false)
            .then(|| PodTrouble::Loading("the startup probe has not succeeded yet".to_owned())),
    }
}

/// Whether a container that is not ready has been ready since its start. Then it does not load, and the server itself says what is wrong.
/// False if a time is missing.
fn was_ready(running: &Value, pod: &Pod) -> bool {
    let micros = |value: &Value, path| Some(parse_timestamp(text(value, path))?.micros);
    let unready = condition(pod, "ContainersReady", "False");
    let changed = unready.and_then(|unready| micros(unready, "/lastTransitionTime"));
    changed.zip(micros(running, "/startedAt")).is_some_and(|(changed, started)| changed > started + RESTART_MICROS)
}

fn exit_code(terminated: &Value) -> i64 {
    terminated["exitCode"].as_i64().unwrap_or_default()
}

fn end_of(terminated: &Value) -> String {
    let (reason, code) = (text(terminated, "/reason"), exit_code(terminated));
    if reason.is_empty() { format!("exit code {code}") } else { format!("{reason}, exit code {code}") }
}

#[cfg(test)]
mod tests;
