//! The GPUs of containers, read from a kubelet that the test runs: gRPC over HTTP/2 on a Unix socket.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use trtllm_gpu::GpuConfig;
use trtllm_gpu::usage::{EngineClaim, GpuUse};
use trtllm_records::gpu::{GpuInventory, PodDevice, PodName};

use super::monitor::{Monitor, UUID_0, UUID_1, all_ok, config};
use crate::support::standin::Standin;

/// The kubelet's message, including fields that the exporter ignores.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<Pod>,
}

#[derive(Clone, PartialEq, Message)]
struct Pod {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<Devices>,
    #[prost(int64, repeated, tag = "3")]
    cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "5")]
    dynamic: Vec<Dynamic>,
}

#[derive(Clone, PartialEq, Message)]
struct Devices {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Dynamic {
    #[prost(string, tag = "2")]
    claim_name: String,
    #[prost(message, repeated, tag = "4")]
    claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, Message)]
struct Claim {
    #[prost(string, tag = "2")]
    driver: String,
    #[prost(string, tag = "3")]
    pool: String,
    #[prost(string, tag = "4")]
    device: String,
}

fn pod(name: &str, resource: &str, ids: &[&str]) -> Pod {
    let devices = Devices { resource: resource.to_owned(), ids: ids.iter().map(|id| (*id).to_owned()).collect() };
    let container =
        Container { name: "engine".to_owned(), devices: vec![devices], cpu_ids: vec![0, 1], dynamic: vec![] };
    Pod { name: name.to_owned(), namespace: "prod".to_owned(), containers: vec![container] }
}

/// The message to send, or the gRPC status to fail with.
type Reply = Arc<Mutex<Result<List, u32>>>;

/// A kubelet that serves its socket until it is dropped. Then it removes the socket.
struct Kubelet {
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
    reply: Reply,
}

impl Kubelet {
    fn start(socket: &Path, pods: Vec<Pod>) -> Self {
        let reply: Reply = Arc::new(Mutex::new(Ok(List { pods })));
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (path, replies) = (socket.to_owned(), Arc::clone(&reply));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListener::bind(&path).unwrap();
                ready.send(()).unwrap();
                let serve = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        let replies = Arc::clone(&replies);
                        let service = service_fn(move |request| respond(Arc::clone(&replies), request));
                        let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        tokio::spawn(http2.serve_connection(TokioIo::new(stream), service));
                    }
                };
                tokio::select! {
                    _ = stopped => {}
                    () = serve => {}
                }
            });
            fs::remove_file(&path).unwrap();
        });
        is_ready.recv().unwrap();
        Self { stop: Some(stop), thread: Some(thread), reply }
    }

    fn set_reply(&self, pods: Result<Vec<Pod>, u32>) {
        *self.reply.lock().unwrap() = pods.map(|pods| List { pods });
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

async fn respond(
    reply: Reply,
    request: Request<Incoming>,
) -> Result<Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>, Infallible> {
    assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
    assert_eq!(request.headers()["content-type"], "application/grpc");
    assert_eq!(request.headers()["te"], "trailers");
    assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), [0_u8; 5].as_slice());
    let response = Response::builder().header("content-type", "application/grpc");
    let list = reply.lock().unwrap().clone();
    Ok(match list {
        Ok(list) => {
            let message = list.encode_to_vec();
            let mut frame = vec![0];
            frame.extend((message.len() as u32).to_be_bytes());
            frame.extend(message);
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let body = Full::new(Bytes::from(frame)).with_trailers(async move { Some(Ok(trailers)) });
            response.body(body.boxed()).unwrap()
        }
        // Like Go's gRPC library: an error has no body, and its status is in the headers.
        Err(status) => {
            let response = response.header("grpc-status", status).header("grpc-message", "not now");
            response.body(Full::new(Bytes::new()).boxed()).unwrap()
        }
    })
}

fn device(gpu: &str, mig: &str, pod: &str) -> PodDevice {
    PodDevice {
        gpu_uuid: gpu.to_owned(),
        mig_uuid: mig.to_owned(),
        pod: PodName { namespace: "prod".to_owned(), pod: pod.to_owned() },
        container: "engine".to_owned(),
    }
}

fn monitor_with_kubelet(standin: &Standin, socket: &Path) -> Monitor {
    Monitor::start(GpuConfig { pod_resources: Some(socket.to_owned()), ..config(standin) })
}

#[test]
fn containers_are_listed_with_their_whole_gpus_shared_gpus_and_mig_instances() {
    let standin = Standin::new("gpus=3\ngpu.1.mig=on\ngpu.1.mig.0=MIG-a,1,0,3g.71gb,75161927680,0,40");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kubelet.sock");
    let mut dra = pod("dra", "", &[]);
    let claim = |driver: &str| Claim { driver: driver.to_owned(), pool: "n".to_owned(), device: "gpu-2".to_owned() };
    let dynamic = Dynamic { claim_name: "c".to_owned(), claims: vec![claim("gpu.nvidia.com"), claim("other.example")] };
    dra.containers[0].dynamic.push(dynamic);
    let _kubelet = Kubelet::start(
        &socket,
        vec![
            pod("slice-1", "nvidia.com/gpu.shared", &[&format!("{UUID_0}::0")]),
            pod("slice-2", "nvidia.com/gpu.shared", &[&format!("{UUID_0}::1"), &format!("{UUID_0}::2")]),
            pod("mig", "nvidia.com/mig-3g.71gb", &["MIG-a"]),
            pod("rdma", "rdma/hca", &["hca0"]),
            pod("elsewhere", "nvidia.com/gpu", &["GPU-elsewhere"]),
            dra,
        ],
    );
    let monitor = monitor_with_kubelet(&standin, &socket);
    let listed = |inventory: &GpuInventory| all_ok(inventory, 3) && inventory.pods.len() == 4;
    let inventory = monitor.until("four devices", listed);
    let third = inventory.gpus[2].identity.uuid.clone();
    let expected = [
        device(UUID_0, "", "slice-1"),
        device(UUID_0, "", "slice-2"),
        device(UUID_1, "MIG-a", "mig"),
        device(&third, "", "dra"),
    ];
    assert_eq!(inventory.pods, expected);
    let elsewhere = PodName { namespace: "prod".to_owned(), pod: "elsewhere".to_owned() };
    assert!(inventory.pods_with_other_gpus.iter().eq([&elsewhere]), "{:?}", inventory.pods_with_other_gpus);
    assert_eq!(inventory.read_errors, []);
}

#[test]
fn a_kubelet_may_start_later_fail_and_restart() {
    let standin = Standin::new("");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kubelet.sock");
    let monitor = monitor_with_kubelet(&standin, &socket);
    let alone = monitor.until("a GPU", |inventory| all_ok(inventory, 1));
    assert_eq!((alone.pods, alone.read_errors), (vec![], vec![]), "a missing kubelet is not an error");
    let kubelet = Kubelet::start(&socket, vec![pod("a", "nvidia.com/gpu", &[UUID_0])]);
    monitor.until("pod a", |inventory| inventory.pods == [device(UUID_0, "", "a")]);
    kubelet.set_reply(Err(14));
    // Between `bind` and `listen` of the kubelet, a request may have failed, too.
    let refused = |inventory: &GpuInventory| inventory.read_errors.iter().any(|error| error.error == "status");
    let failing = monitor.until("the request is refused", refused);
    assert!(failing.read_errors.iter().all(|error| error.call == "pod_resources"), "{:?}", failing.read_errors);
    assert_eq!(failing.pods, [device(UUID_0, "", "a")], "one failure keeps the last assignments");
    drop(kubelet);
    monitor.until("no kubelet, no assignments", |inventory| inventory.pods.is_empty());
    let _kubelet = Kubelet::start(&socket, vec![pod("b", "nvidia.com/gpu", &["nvidia0"])]);
    monitor.until("pod b", |inventory| inventory.pods == [device(UUID_0, "", "b")]);
}

#[test]
fn a_socket_of_another_program_is_an_error_and_does_not_hang() {
    let standin = Standin::new("");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kubelet.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let other_program = thread::spawn(move || listener.accept().map(|(stream, _)| drop(stream)).unwrap());
    let monitor = monitor_with_kubelet(&standin, &socket);
    let failing = monitor.until("the request fails", |inventory| !inventory.read_errors.is_empty());
    assert_eq!((failing.read_errors[0].call, failing.pods), ("pod_resources", vec![]));
    other_program.join().unwrap();
}

#[test]
fn the_only_engine_of_a_pod_has_the_energy_of_the_pods_gpus() {
    let state = |first: u64, second: u64| format!("gpus=2\ngpu.0.energy_mj={first}\ngpu.1.energy_mj={second}");
    let standin = Standin::new(&state(1000, 5000));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kubelet.sock");
    let pods = vec![pod("ours", "nvidia.com/gpu", &[UUID_1]), pod("theirs", "nvidia.com/gpu", &[UUID_0])];
    let kubelet = Kubelet::start(&socket, pods);
    let mut monitor = monitor_with_kubelet(&standin, &socket);
    let listed = monitor.until("two devices", |inventory| all_ok(inventory, 2) && inventory.pods.len() == 2);
    // An engine's energy counts from the first poll after the kubelet has listed the GPUs of its pod.
    monitor.until("a poll of each GPU after the list", |inventory| {
        let polled = |inventory: &GpuInventory| {
            inventory.gpus.iter().map(|gpu| gpu.last_poll.unwrap().monotonic).collect::<Vec<_>>()
        };
        polled(inventory).into_iter().zip(polled(&listed)).all(|(now, then)| now > then)
    });
    standin.set(&state(1700, 5030));
    let counters = |inventory: &GpuInventory| {
        inventory.gpus.iter().map(|gpu| gpu.readings.energy_counter_mj).eq([Some(1700), Some(5030)])
    };
    monitor.until("both counters", counters);
    monitor.stop();
    let used = |name: &str| {
        let pod = PodName { namespace: "prod".to_owned(), pod: name.to_owned() };
        let mut gpu_use = GpuUse::new(folder.path(), Some(pod));
        let all = monitor.all();
        let engine = EngineClaim { id: 1, ..EngineClaim::default() };
        let engines = std::slice::from_ref(&engine);
        let shown = all.iter().map(|(_, inventory)| gpu_use.absorb(inventory, engines).remove(0));
        shown.last().unwrap()
    };
    let ours = used("ours").unwrap();
    assert_eq!((ours.uuids, ours.energy_joules), (vec![UUID_1.to_owned()], Some(0.03)));
    assert_eq!(used("theirs").unwrap().energy_joules, Some(0.7));
    assert_eq!(used("none"), None);
    drop(kubelet);
}
