//! Follows the pods that serve TensorRT-LLM: lists them, and then watches their changes. Only a few fields of pods are read, so a client
//! library is not needed: kube 5.0 would add 56 packages to 197. Kubernetes renews the token and the certificates, so each new
//! connection reads them again.

mod pod;

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use trtllm_records::PodTrouble;
use trtllm_service::permits::timeout;

use super::discovery::{FoundServer, Identity, identify};
use super::error::{OpenError, SourceError};
use super::http_client::HttpClient;
use super::server::{Access, TargetServer};
use pod::{Pod, ServingPod, serving, text};

/// Where Kubernetes mounts the credentials of a pod.
const CREDENTIALS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Timeout of the beginning of an answer, and of the rest of an event that has begun.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The API server ends a watch after this time. So a connection that hangs is noticed soon after.
const WATCH: Duration = Duration::from_secs(120);
/// Time until the next attempt after a failure. It doubles with each failure.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// Pods in one answer of a list. A pod with its managed fields may have 30 KB.
const PAGE: usize = 50;
/// Limit of an answer of a list in bytes.
const MAX_PAGE: usize = 8 << 20;
/// Limit of all events of one watch in bytes. The next watch continues.
const MAX_WATCH: usize = 256 << 20;
/// Limit of the pods that are followed.
const MAX_PODS: usize = 256;
const TOO_MANY: &str = "more than 256 pods serve TensorRT-LLM, and the others are not read; select fewer with the options namespace, selector or \
     node, and run several exporters";

/// Which pods are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSelection {
    /// `None`: all namespaces.
    pub namespace: Option<String>,
    /// A label selector. Without it, the command and the image of a pod decide.
    pub selector: Option<String>,
    /// Only pods of this node; by default of the node in the environment variable `NODE_NAME`.
    pub node: Option<String>,
    /// Pods of all nodes.
    pub all_nodes: bool,
    /// The port of all servers whose pods have no annotation with it.
    pub port: Option<u16>,
    /// The API server. `None`: that of this pod.
    pub api_server: Option<Access>,
}

impl PodSelection {
    /// Checks that the API server and the node are known. Fails if the environment does not tell one of them.
    pub fn check(&self) -> Result<(), OpenError> {
        self.node().and_then(|_| self.access()).map(drop)
    }

    fn node(&self) -> Result<Option<String>, OpenError> {
        if self.all_nodes {
            return Ok(None);
        }
        let cause = "the node is not known: set the environment variable NODE_NAME from the field spec.nodeName of the pod, as \
                     the chart does, or add the option node=NAME, or all_nodes=true if no other exporter reads these pods";
        let node = self.node.clone().or_else(|| variable("NODE_NAME"));
        node.map(Some).ok_or_else(|| OpenError::Kubernetes { cause: cause.to_owned() })
    }

    fn access(&self) -> Result<Access, OpenError> {
        if let Some(access) = &self.api_server {
            return Ok(access.clone());
        }
        let Some((host, port)) = variable("KUBERNETES_SERVICE_HOST").zip(variable("KUBERNETES_SERVICE_PORT")) else {
            let cause = "this process does not run in a pod (no KUBERNETES_SERVICE_HOST); run it in one, or add \
                         the option api_server=URL, such as the http://127.0.0.1:8001 of kubectl proxy";
            return Err(OpenError::Kubernetes { cause: cause.to_owned() });
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let file = |name: &str| Some(Path::new(CREDENTIALS).join(name));
        Ok(Access {
            target: format!("https://{host}:{port}"),
            ca_file: file("ca.crt"),
            bearer_token_file: file("token"),
        })
    }

    /// The path of the pods, with the query that selects them.
    fn path(&self) -> Result<String, OpenError> {
        let node = self.node()?.map(|node| format!("spec.nodeName={node}"));
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(node.map(|node| ("fieldSelector", node)));
        query.extend_pairs(self.selector.as_ref().map(|selector| ("labelSelector", selector)));
        let namespace = self.namespace.as_ref().map_or(String::new(), |name| format!("namespaces/{name}/"));
        Ok(format!("/api/v1/{namespace}pods?{}", query.finish()))
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The pods that serve TensorRT-LLM, as last told by the API server. They stay while it cannot be reached.
#[derive(Debug, Default)]
pub struct Pods {
    known: Mutex<Known>,
    changed: Notify,
}

/// Namespace and name of a pod.
type Key = (String, String);

#[derive(Debug, Default)]
struct Known {
    pods: BTreeMap<Key, ServingPod>,
    /// Why the pods cannot be followed, or not all of them.
    problem: Option<Failed>,
    /// There are more than [`MAX_PODS`].
    too_many: bool,
}

impl Pods {
    /// Follows the pods, and never ends.
    pub async fn follow(&self, selection: &PodSelection) {
        let mut delay = FIRST_DELAY;
        loop {
            let began = Instant::now();
            let failed = match PodApi::open(selection).await {
                Ok(mut api) => api.list_and_watch(self).await.err(),
                Err(error) => Some(("the API server".to_owned(), error.to_string())),
            };
            if failed.is_none() || began.elapsed() > LONGEST_DELAY {
                delay = FIRST_DELAY;
            }
            if failed.is_some() {
                self.change(|known| known.problem = failed);
            }
            tokio::time::sleep(with_jitter(delay)).await;
            delay = (2 * delay).min(LONGEST_DELAY);
        }
    }

    /// Waits until a pod changes.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Asks the servers of all pods.
    pub async fn search(&self) -> Vec<FoundServer> {
        let (pods, problem) = {
            let known = self.known.lock();
            let too_many = known.too_many.then(|| ("the API server".to_owned(), TOO_MANY.to_owned()));
            (known.pods.values().cloned().collect::<Vec<_>>(), known.problem.clone().or(too_many))
        };
        let mut asked = JoinSet::new();
        for (order, ServingPod { pod, target, orchestrator, left }) in pods.into_iter().enumerate() {
            asked.spawn(async move {
                let identity = match (left, &target, &pod.trouble) {
                    (Some(why), ..) => Identity::Left(why),
                    (None, _, Some(PodTrouble::Down(why))) => Identity::NotReady(why.clone()),
                    (None, None, _) => Identity::NotReady("it has no address yet".to_owned()),
                    (None, Some(target), _) => {
                        let identity = identify(target, Some(orchestrator)).await;
                        identity.unwrap_or_else(|| Identity::NotReady("it does not answer".to_owned()))
                    }
                };
                let target = target.unwrap_or_default();
                (order, FoundServer { target, configured: false, identity, pod: Some(pod) })
            });
        }
        let mut findings = asked.join_all().await;
        findings.sort_by_key(|(order, _)| *order);
        let failed = problem.map(|(target, why)| FoundServer {
            target,
            configured: false,
            identity: Identity::Unknown(why),
            pod: None,
        });
        findings.into_iter().map(|(_, finding)| finding).chain(failed).collect()
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.lock());
        self.changed.notify_one();
    }
}

/// A time between half of `delay` and `delay`, so that the exporters of all nodes do not ask at the same time.
fn with_jitter(delay: Duration) -> Duration {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    delay.mul_f64(0.5 + 0.5 * f64::from(nanos % 1_000_000) / 1e6)
}

/// The address of the API server, and why it did not do what was asked.
type Failed = (String, String);

/// How a watch ended.
#[derive(Debug, PartialEq, Eq)]
enum Watched {
    /// The next one continues it.
    Ended,
    /// The API server no longer knows where to continue, so the pods must be listed again.
    Gone,
}

#[derive(Deserialize)]
struct PodList<'a> {
    metadata: ListMetadata,
    /// Parsed one by one, because a parsed pod takes many times the memory of its text.
    #[serde(default, borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    r#continue: String,
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// A connection to the API server.
struct PodApi<'a> {
    client: HttpClient,
    selection: &'a PodSelection,
    path: String,
}

impl<'a> PodApi<'a> {
    async fn open(selection: &'a PodSelection) -> Result<Self, OpenError> {
        let client = HttpClient::new(TargetServer::new(selection.access()?).await?).with_max_body(MAX_WATCH);
        Ok(Self { client, selection, path: selection.path()? })
    }

    /// Returns when the pods must be listed again.
    async fn list_and_watch(&mut self, pods: &Pods) -> Result<(), Failed> {
        let mut version = self.list(pods).await?;
        while self.watch(pods, &mut version).await? == Watched::Ended {
            // A server that ends each watch at once must not be asked again at once.
            tokio::time::sleep(with_jitter(FIRST_DELAY)).await;
        }
        Ok(())
    }

    /// Replaces the known pods. Returns the version of the list.
    async fn list(&mut self, pods: &Pods) -> Result<String, Failed> {
        let (mut found, mut next, mut too_many) = (BTreeMap::new(), String::new(), false);
        loop {
            let after: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
            let path = format!("{}&limit={PAGE}&continue={after}", self.path);
            let answer = self.read_page(&path).await;
            let (metadata, pods_of_page) = answer.map_err(|error| self.failed("list", &error))?;
            let room = MAX_PODS - found.len();
            too_many |= pods_of_page.len() > room;
            found.extend(pods_of_page.into_iter().take(room));
            if metadata.r#continue.is_empty() {
                pods.change(|known| (known.pods, known.too_many) = (found, too_many));
                return Ok(metadata.resource_version);
            }
            next = metadata.r#continue;
        }
    }

    /// The pods on a page of the list that serve TensorRT-LLM.
    async fn read_page(&mut self, path: &str) -> Result<(ListMetadata, Vec<(Key, ServingPod)>), SourceError> {
        let target = self.client.server.target.clone();
        let answer = timeout(TIMEOUT, pin!(self.client.read_at_most(MAX_PAGE, path))).await;
        let body = answer.unwrap_or_else(|_| Err(SourceError::Timeout { target: target.clone(), after: TIMEOUT }))?;
        let list = parse_list(body, self.selection);
        self.client.release();
        list.map_err(|error| SourceError::NotJson { target, cause: error.to_string() })
    }

    /// Follows the changes after `version`, until the watch ends.
    async fn watch(&mut self, pods: &Pods, version: &mut String) -> Result<Watched, Failed> {
        let seconds = WATCH.as_secs();
        let path = format!(
            "{}&watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}",
            self.path
        );
        let opened = timeout(TIMEOUT, pin!(self.client.open(&path))).await;
        match opened
            .unwrap_or_else(|_| Err(SourceError::Timeout { target: self.client.server.target.clone(), after: TIMEOUT }))
        {
            Ok(()) => pods.change(|known| known.problem = None),
            Err(SourceError::HttpStatus { status: 410, .. }) => return Ok(Watched::Gone),
            Err(error) => return Err(self.failed("watch", &error)),
        }
        let mut parsed = 0;
        while self.client.is_receiving() {
            let limit = if self.client.received().len() > parsed { TIMEOUT } else { WATCH + TIMEOUT };
            // The next watch tells why, if the reason continues.
            let Ok(Ok(())) = timeout(limit, pin!(self.client.read_more(parsed))).await else { break };
            let body = self.client.received();
            parsed = memchr::memrchr(b'\n', body).map_or(0, |end| end + 1);
            for line in body[..parsed].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                match self.event(line, pods) {
                    Some(newest) => *version = newest,
                    None => {
                        self.client.release();
                        return Ok(Watched::Gone);
                    }
                }
            }
        }
        self.client.release();
        Ok(Watched::Ended)
    }

    /// Applies an event, and returns its version. `None` if the pods must be listed again: after an error, whose usual reason is that the
    /// version is too old, and after an event that cannot be read.
    fn event(&self, line: &[u8], pods: &Pods) -> Option<String> {
        let Event { r#type, object } = serde_json::from_slice(line).ok()?;
        let pod: Pod = serde_json::from_str(object.get()).ok().filter(|_| r#type != "ERROR")?;
        let version = Some(text(&pod, "/metadata/resourceVersion").to_owned()).filter(|version| !version.is_empty())?;
        if r#type == "BOOKMARK" {
            return Some(version);
        }
        let key = key(&pod);
        let now = serving(&pod, self.selection).filter(|_| r#type != "DELETED");
        let is_same = pods.known.lock().pods.get(&key) == now.as_ref();
        if !is_same {
            pods.change(|known| match now {
                Some(pod) if known.pods.len() < MAX_PODS || known.pods.contains_key(&key) => {
                    known.pods.insert(key, pod);
                }
                Some(_) => known.too_many = true,
                None => known.too_many &= known.pods.remove(&key).is_none(),
            });
        }
        Some(version)
    }

    fn failed(&self, verb: &str, error: &SourceError) -> Failed {
        let place = match &self.selection.namespace {
            Some(namespace) => format!("in the namespace {namespace}"),
            None => "in all namespaces".to_owned(),
        };
        let role = if self.selection.namespace.is_some() { "Role" } else { "ClusterRole" };
        let TargetServer { target, token_file, .. } = &self.client.server;
        let token = token_file.as_deref().map_or("none".to_owned(), |path| path.display().to_string());
        let why = match error {
            SourceError::Unauthorized { status: 403, .. } => format!(
                "the service account must not {verb} pods {place} (status 403); bind it to a {role} that allows get, list and \
                 watch of pods, as the chart does"
            ),
            SourceError::Unauthorized { .. } => format!(
                "cannot {verb} pods: the API server does not accept the token (file: {token}); it has expired, or is that of \
                 another cluster"
            ),
            error => match error.status() {
                Some(status) => format!("cannot {verb} pods {place}: the API server answered with status {status}"),
                None => format!("cannot {verb} pods {place}: {}", remedied(error)),
            },
        };
        (target.clone(), why)
    }
}

fn parse_list(body: &[u8], selection: &PodSelection) -> serde_json::Result<(ListMetadata, Vec<(Key, ServingPod)>)> {
    let PodList { metadata, items } = serde_json::from_slice(body)?;
    let mut found = Vec::new();
    for item in items {
        let pod: Pod = serde_json::from_str(item.get())?;
        found.extend(serving(&pod, selection).map(|serving| (key(&pod), serving)));
    }
    Ok((metadata, found))
}

/// Why the API server did not answer, with what to do about it. Other errors name a source of engines as the remedy.
fn remedied(error: &SourceError) -> String {
    let cause = match error {
        SourceError::Connect { cause, .. }
        | SourceError::NoHttp { cause, .. }
        | SourceError::NotJson { cause, .. }
        | SourceError::Io { cause, .. } => cause.clone(),
        SourceError::Timeout { after, .. } => format!("no answer within {after:?}"),
        error => return error.to_string(),
    };
    format!("{cause}; check the NetworkPolicy of this pod and the address of the API server")
}

fn key(pod: &Pod) -> Key {
    (text(pod, "/metadata/namespace").to_owned(), text(pod, "/metadata/name").to_owned())
}
