//! The kubelet's PodResources API: gRPC's `v1.PodResourcesLister/List` over its Unix socket. One call at a time on a
//! connection of its own, since the kubelet replaces the socket when it restarts; bounded in time and size.
//! The messages are the parts that are read of k8s.io/kubelet/pkg/apis/podresources/v1; unknown fields are skipped.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;

use super::claims::{Claim, DeviceName};

const DEADLINE: Duration = Duration::from_secs(5);
/// Ten times what a node of 250 pods with 16 devices each says.
const MOST_BYTES: usize = 16 << 20;
/// NVIDIA's driver of dynamic resource allocation.
const DRA_DRIVER: &str = "gpu.nvidia.com";

/// Why the kubelet told nothing. The text names the socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeletError {
    #[error("{path}: {cause}; give this process the directory of the kubelet's socket, or another --gpu.pod-resources")]
    Connect { path: String, cause: io::Error },
    #[error("{path}: no answer within {DEADLINE:?}")]
    Timeout { path: String },
    #[error("{path}: {cause}")]
    Transport { path: String, cause: String },
    #[error("{path}: the kubelet answers gRPC status {status}: {message}")]
    Status { path: String, status: String, message: String },
    #[error("{path}: no PodResources answer: {cause}")]
    Answer { path: String, cause: String },
}

impl KubeletError {
    /// A word to count by.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Timeout { .. } => "timeout",
            Self::Transport { .. } => "transport",
            Self::Status { .. } => "status",
            Self::Answer { .. } => "invalid",
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

/// Every NVIDIA device of every container of this node.
pub(super) async fn claims(socket: &Path) -> Result<Vec<Claim>, KubeletError> {
    let path = socket.display().to_string();
    let listing = tokio::time::timeout(DEADLINE, list(socket, &path)).await;
    let pods = listing.unwrap_or(Err(KubeletError::Timeout { path }))?;
    Ok(from_pods(pods))
}

async fn list(socket: &Path, path: &str) -> Result<Vec<PodResources>, KubeletError> {
    let path = || path.to_owned();
    let stream = UnixStream::connect(socket).await.map_err(|cause| KubeletError::Connect { path: path(), cause })?;
    let transport = |cause: String| KubeletError::Transport { path: path(), cause };
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| transport(error.to_string()))?;
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://localhost/v1.PodResourcesLister/List")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        // An empty request: not compressed, of no bytes.
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .map_err(|error| transport(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(|error| transport(error.to_string()))?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MOST_BYTES).collect().await.map_err(|error| transport(error.to_string()))?;
    connection.abort();
    // Without any answer the status stands in the head.
    let trailers = body.trailers().unwrap_or(&head.headers);
    let text = |name| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    match text("grpc-status").as_str() {
        "0" => {}
        "" => return Err(transport(format!("HTTP {} and no gRPC status", head.status))),
        status => {
            return Err(KubeletError::Status {
                path: path(),
                status: status.to_owned(),
                message: text("grpc-message"),
            });
        }
    }
    from_frame(&body.to_bytes()).map_err(|cause| KubeletError::Answer { path: path(), cause })
}

/// One gRPC message: whether it is compressed, its length, itself.
fn from_frame(frame: &[u8]) -> Result<Vec<PodResources>, String> {
    let (head, message) = frame.split_at_checked(5).ok_or("shorter than a message's head")?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    if head[0] != 0 || usize::try_from(length) != Ok(message.len()) {
        return Err("not one uncompressed message".to_owned());
    }
    ListPodResourcesResponse::decode(message).map(|answer| answer.pod_resources).map_err(|error| error.to_string())
}

fn from_pods(pods: Vec<PodResources>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for pod in pods {
        for container in pod.containers {
            let plugged = container.devices.iter().flat_map(|devices| &devices.device_ids);
            let plugged = plugged.filter_map(|id| DeviceName::parse(id));
            let dynamic = container.dynamic_resources.iter().flat_map(|resource| &resource.claim_resources);
            let dynamic = dynamic.filter(|claim| claim.driver_name == DRA_DRIVER);
            let dynamic = dynamic.filter_map(|claim| DeviceName::parse_dra(&claim.device_name));
            claims.extend(plugged.chain(dynamic).map(|device| Claim {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                container: container.name.clone(),
                device,
            }));
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, BytesMut};

    use super::*;

    /// As the kubelet would say it.
    fn frame(pods: Vec<PodResources>) -> Bytes {
        let message = ListPodResourcesResponse { pod_resources: pods }.encode_to_vec();
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(message.len() as u32);
        frame.put_slice(&message);
        frame.freeze()
    }

    #[test]
    fn devices_of_plugins_and_of_dra_are_claims_and_others_are_not() {
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
        let claims = from_pods(from_frame(&frame(vec![pod])).unwrap());
        let names: Vec<DeviceName> = claims.iter().map(|claim| claim.device.clone()).collect();
        let expected = [DeviceName::Gpu("GPU-a".to_owned()), DeviceName::Mig("MIG-b".to_owned()), DeviceName::Minor(3)];
        assert_eq!(names, expected);
        let first = &claims[0];
        assert_eq!((&*first.namespace, &*first.pod, &*first.container), ("prod", "llama-0", "engine"));
    }

    #[test]
    fn a_frame_cut_anywhere_is_no_answer() {
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
