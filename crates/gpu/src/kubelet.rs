//! The thread that asks the kubelet, at an interval, which container uses which GPU. It makes the gRPC call
//! `v1.PodResourcesLister/List` over the kubelet's Unix socket, bounded in time and size. Each call opens a connection,
//! because the kubelet replaces the socket when it restarts. A missing socket is not an error: most machines run no
//! kubelet. The messages contain only those fields of k8s.io/kubelet/pkg/apis/podresources/v1 that are used.

use std::io;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;

use super::device_assignment::{DeviceAssignment, is_gpu, resolve};
use super::device_holders::DeviceHolders;
use super::event::Event;
use super::threads::StopSignal;
use trtllm_records::gpu::{Gpu, PodDevice, PodName};

const DEADLINE: Duration = Duration::from_secs(5);
/// If the kubelet does not answer for this long, the last assignments are dropped, because they may be outdated.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Longest response. It is ten times the response of a node that has 250 pods with 16 devices each.
const MAX_BYTES: usize = 16 << 20;
/// Name of NVIDIA's driver for dynamic resource allocation (DRA).
const DRA_DRIVER: &str = "gpu.nvidia.com";

/// Why the request failed.
#[derive(Debug, thiserror::Error)]
enum KubeletError {
    #[error("{0}; mount the directory of the kubelet's socket, or change --gpu.pod-resources")]
    Connect(#[from] io::Error),
    #[error("no response within {DEADLINE:?}; check the kubelet")]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error("{0}; check that --gpu.pod-resources names the kubelet's socket")]
    Transport(String),
    #[error(
        "response is longer than {} MiB; look for a pod with very many devices or repeated DRA claims on this node",
        MAX_BYTES >> 20
    )]
    TooLong,
    #[error(
        "gRPC status {status}: {message}; check the kubelet (status 8: too many requests, also of other clients of its \
         socket)"
    )]
    Status { status: String, message: String },
    #[error("invalid PodResources response: {0}; check that --gpu.pod-resources names the kubelet's socket")]
    Invalid(String),
}

impl KubeletError {
    /// The label value under which the error is counted.
    fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Timeout(_) => "timeout",
            Self::Transport(_) => "transport",
            Self::TooLong => "too_long",
            Self::Status { .. } => "status",
            Self::Invalid(_) => "invalid",
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct ListPodResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pod_resources: Vec<PodResources>,
}

#[derive(Clone, PartialEq, Message)]
struct PodResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<ContainerResources>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<ContainerDevices>,
    #[prost(message, repeated, tag = "5")]
    dynamic_resources: Vec<DynamicResource>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerDevices {
    #[prost(string, repeated, tag = "2")]
    device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct DynamicResource {
    #[prost(message, repeated, tag = "4")]
    claim_resources: Vec<ClaimResource>,
}

#[derive(Clone, PartialEq, Message)]
struct ClaimResource {
    #[prost(string, tag = "2")]
    driver_name: String,
    #[prost(string, tag = "4")]
    device_name: String,
}

/// Polls until it is asked to stop.
pub(super) fn poll(
    socket: &Path,
    own_pod: Option<&PodName>,
    interval: Duration,
    stop: &StopSignal,
    events: &Sender<Event>,
) {
    let mut answered = Instant::now();
    let mut failing = None;
    let mut holders = DeviceHolders::default();
    let mut is_hidden = false;
    loop {
        // A host without a kubelet has no socket. If this user may not look into the directory, it is unknown whether there is one.
        let exists = socket.try_exists().unwrap_or_else(|error| {
            if !std::mem::replace(&mut is_hidden, true) {
                let socket = socket.display();
                tracing::warn!(%socket, %error, "pods of GPUs are unknown; let this user read the directory, or set --gpu.pod-resources");
            }
            false
        });
        let assignments = match exists.then(|| fetch(socket)) {
            None => Some(Vec::new()),
            Some(Ok(assignments)) => {
                if failing.take().is_some() {
                    tracing::info!(socket = %socket.display(), "kubelet request succeeds again");
                }
                answered = Instant::now();
                Some(holders.update(assignments, own_pod))
            }
            Some(Err(error)) => {
                if failing.replace(error.kind()) != Some(error.kind()) {
                    let error = format!("{}: {error}", socket.display());
                    tracing::warn!(%error, "kubelet request failed; pods of GPUs are unknown or outdated");
                }
                if events.send(Event::Assignments(Err(error.kind()))).is_err() {
                    return;
                }
                (answered.elapsed() > MAX_AGE).then(Vec::new)
            }
        };
        let ended = assignments.is_some_and(|assignments| events.send(Event::Assignments(Ok(assignments))).is_err());
        if ended || stop.wait(interval) {
            return;
        }
    }
}

/// Reads every NVIDIA device of every container of this node. Each request builds a runtime: that takes a dozen microseconds
/// every ten seconds, and no memory is held in between. The only gRPC call of this program sends an empty message and reads one, so
/// no gRPC crate is needed.
fn fetch(socket: &Path) -> Result<Vec<DeviceAssignment>, KubeletError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(DEADLINE, list(socket)).await? }).map(from_pods)
}

async fn list(socket: &Path) -> Result<Vec<PodResources>, KubeletError> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(transport)?;
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://localhost/v1.PodResourcesLister/List")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        // An empty gRPC message: the flag "not compressed" and the length 0.
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .map_err(transport)?;
    let (head, body) = sender.send_request(request).await.map_err(transport)?.into_parts();
    let body = Limited::new(body, MAX_BYTES).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
        true => KubeletError::TooLong,
        false => transport(error),
    })?;
    connection.abort();
    // A response without a message has the gRPC status in its headers, not in trailers.
    let trailers = body.trailers().unwrap_or(&head.headers);
    let text = |name| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    match text("grpc-status").as_str() {
        "0" => from_frame(&body.to_bytes()).map_err(KubeletError::Invalid),
        "" => Err(transport(format!("HTTP status {} without a gRPC status", head.status))),
        status => Err(KubeletError::Status { status: status.to_owned(), message: text("grpc-message") }),
    }
}

fn transport(cause: impl ToString) -> KubeletError {
    KubeletError::Transport(cause.to_string())
}

/// The GPUs that a kubelet's answer assigns to containers. Public only for the fuzz target.
#[doc(hidden)]
pub fn pods_of_answer(frame: &[u8], gpus: &[Gpu]) -> Result<Vec<PodDevice>, String> {
    Ok(resolve(&from_pods(from_frame(frame)?), gpus).0)
}

/// Parses one gRPC message: a byte for compression, four bytes of length, the message.
fn from_frame(frame: &[u8]) -> Result<Vec<PodResources>, String> {
    let (head, message) = frame.split_at_checked(5).ok_or("shorter than the header of a gRPC message")?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    if head[0] != 0 || usize::try_from(length) != Ok(message.len()) {
        return Err("not exactly one uncompressed gRPC message".to_owned());
    }
    ListPodResourcesResponse::decode(message).map(|response| response.pod_resources).map_err(|error| error.to_string())
}

fn from_pods(pods: Vec<PodResources>) -> Vec<DeviceAssignment> {
    let mut assignments = Vec::new();
    for pod in pods {
        let name = PodName { namespace: pod.namespace, pod: pod.name };
        for container in pod.containers {
            let of_plugins = container.devices.into_iter().flat_map(|devices| devices.device_ids);
            let of_dra = container.dynamic_resources.into_iter().flat_map(|resource| resource.claim_resources);
            let of_dra = of_dra.filter(|claim| claim.driver_name == DRA_DRIVER).map(|claim| claim.device_name);
            let devices = of_plugins.map(|device| (device, true)).chain(of_dra.map(|device| (device, false)));
            let gpus = devices.filter(|(device, _)| is_gpu(device));
            assignments.extend(gpus.map(|(device, exclusive)| DeviceAssignment {
                pod: name.clone(),
                container: container.name.clone(),
                device,
                exclusive,
            }));
        }
    }
    assignments
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, BytesMut};

    use super::*;

    /// The bytes that a kubelet would send.
    fn frame(pods: Vec<PodResources>) -> Bytes {
        let message = ListPodResourcesResponse { pod_resources: pods }.encode_to_vec();
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(message.len() as u32);
        frame.put_slice(&message);
        frame.freeze()
    }

    #[test]
    fn nvidia_devices_of_plugins_and_of_dra_are_assignments_and_other_devices_are_not() {
        let devices = |ids: &[&str]| ContainerDevices { device_ids: ids.iter().map(|id| (*id).to_owned()).collect() };
        let dynamic = |driver: &str, device: &str| DynamicResource {
            claim_resources: vec![ClaimResource { driver_name: driver.to_owned(), device_name: device.to_owned() }],
        };
        let pod = PodResources {
            name: "llama-0".to_owned(),
            namespace: "prod".to_owned(),
            containers: vec![ContainerResources {
                name: "engine".to_owned(),
                devices: vec![devices(&["GPU-a", "MIG-b"]), devices(&["rdma0"])],
                dynamic_resources: vec![dynamic("gpu.nvidia.com", "gpu-3"), dynamic("net.example", "gpu-4")],
            }],
        };
        let assignments = from_pods(from_frame(&frame(vec![pod])).unwrap());
        let names: Vec<&str> = assignments.iter().map(|assignment| &*assignment.device).collect();
        assert_eq!(names, ["GPU-a", "MIG-b", "gpu-3"]);
        let first = &assignments[0];
        assert_eq!((&*first.pod.namespace, &*first.pod.pod, &*first.container), ("prod", "llama-0", "engine"));
    }

    #[test]
    fn a_truncated_or_compressed_frame_is_invalid() {
        let pod = PodResources { name: "a".to_owned(), ..PodResources::default() };
        let whole = frame(vec![pod]);
        assert_eq!(from_frame(&whole).unwrap().len(), 1);
        for length in 0..whole.len() {
            assert!(from_frame(&whole[..length]).is_err(), "{length} bytes");
        }
        let mut compressed = whole.to_vec();
        compressed[0] = 1;
        assert!(from_frame(&compressed).is_err());
    }
}
