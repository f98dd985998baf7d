//! An API server of Kubernetes with pods only: lists in pages, watches, and the errors that a test chooses.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::lookalike::Lookalike;

/// What the API server knows, and how it answers.
#[derive(Default)]
pub(crate) struct Api {
    pods: BTreeMap<String, Value>,
    events: Vec<(u64, &'static str, Value)>,
    version: u64,
    /// The status of each list or watch, instead of an answer.
    pub(crate) list_status: Option<u16>,
    pub(crate) watch_status: Option<u16>,
    /// The only valid token. `None`: every request is authorized.
    pub(crate) token: Option<String>,
    /// Watches of older versions fail.
    oldest: u64,
    /// A watch ends when this changes.
    watches: u64,
    /// The paths of all requests.
    pub(crate) asked: Vec<String>,
}

pub(crate) struct ApiServer {
    pub(crate) port: u16,
    api: Arc<(Mutex<Api>, Condvar)>,
}

impl ApiServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let api = Arc::<(Mutex<Api>, Condvar)>::default();
        let shared = Arc::clone(&api);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let api = Arc::clone(&shared);
                thread::spawn(move || connection(stream, &api));
            }
        });
        Self { port, api }
    }

    /// Changes how the server answers.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Api) -> T) -> T {
        let result = change(&mut self.api.0.lock().unwrap());
        self.api.1.notify_all();
        result
    }

    /// Adds or replaces a pod.
    pub(crate) fn apply(&self, mut pod: Value) {
        self.change(|api| {
            api.version += 1;
            pod["metadata"]["resourceVersion"] = api.version.to_string().into();
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            let before = api.pods.insert(name, pod.clone());
            api.events.push((api.version, if before.is_some() { "MODIFIED" } else { "ADDED" }, pod));
        });
    }

    pub(crate) fn delete(&self, name: &str) {
        self.change(|api| {
            api.version += 1;
            let pod = api.pods.remove(name).unwrap();
            api.events.push((api.version, "DELETED", pod));
        });
    }

    /// Ends all watches. The next ones must begin with a new list.
    pub(crate) fn forget_events(&self) {
        self.change(|api| {
            (api.oldest, api.watches) = (api.version + 1, api.watches + 1);
            api.version += 1;
            api.events.clear();
        });
    }

    /// Ends all watches.
    pub(crate) fn end_watches(&self) {
        self.change(|api| api.watches += 1);
    }
}

/// A pod that runs this server.
pub(crate) fn pod(name: &str, node: &str, server: &Lookalike) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "team-a", "uid": format!("uid-of-{name}"),
            "annotations": {"trtllm-exporter.io/port": server.port().to_string()},
        },
        "spec": {"nodeName": node, "containers": [{"name": "server", "image": "models", "command": ["trtllm-serve", "m"]}]},
        "status": {
            "phase": "Running", "podIP": "127.0.0.1",
            "containerStatuses": [{"name": "server", "ready": true, "state": {"running": {}}}],
        },
    })
}

fn connection(stream: TcpStream, api: &(Mutex<Api>, Condvar)) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|bytes| bytes > 0) {
        if !head.ends_with("\r\n\r\n") {
            continue;
        }
        let request = std::mem::take(&mut head);
        let uri = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
        let query: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let is_watch = query.contains_key("watch");
        let status = {
            let mut api = api.0.lock().unwrap();
            api.asked.push(uri.clone());
            let has_token = |token: &String| request.contains(&format!("authorization: Bearer {token}\r\n"));
            match () {
                () if path != "/api/v1/pods" && path != "/api/v1/namespaces/team-a/pods" => 404,
                () if !api.token.as_ref().is_none_or(has_token) => 401,
                () => if is_watch { api.watch_status } else { api.list_status }.unwrap_or(200),
            }
        };
        let sent = match (status, is_watch) {
            (200, true) => watch(reader.get_mut(), api, &query),
            (200, false) => send(reader.get_mut(), 200, list(&api.0.lock().unwrap(), &query)),
            (status, _) => send(reader.get_mut(), status, json!({"kind": "Status", "code": status})),
        };
        if sent.is_err() {
            return;
        }
    }
}

fn send(stream: &mut TcpStream, status: u16, body: Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn is_selected(pod: &Value, query: &BTreeMap<String, String>) -> bool {
    let node = query.get("fieldSelector").and_then(|selector| selector.strip_prefix("spec.nodeName="));
    node.is_none_or(|node| pod["spec"]["nodeName"] == node)
}

/// One pod in each answer, so that every list has several.
fn list(api: &Api, query: &BTreeMap<String, String>) -> Value {
    let after = query.get("continue").cloned().unwrap_or_default();
    let mut rest = api.pods.iter().filter(|(name, pod)| **name > after && is_selected(pod, query));
    let pod = rest.next();
    let next = pod.filter(|_| rest.next().is_some()).map_or("", |(name, _)| name);
    let items: Vec<&Value> = pod.into_iter().map(|(_, pod)| pod).collect();
    json!({"kind": "PodList", "metadata": {"resourceVersion": api.version.to_string(), "continue": next}, "items": items})
}

/// Sends the events after the version in the query, in chunks that split lines.
fn watch(stream: &mut TcpStream, api: &(Mutex<Api>, Condvar), query: &BTreeMap<String, String>) -> std::io::Result<()> {
    let mut sent: u64 = query["resourceVersion"].parse().unwrap();
    let began = api.0.lock().unwrap().watches;
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
    loop {
        let (lines, ended) = {
            let (guard, _) = api.1.wait_timeout(api.0.lock().unwrap(), Duration::from_millis(100)).unwrap();
            let mut lines: Vec<Value> = Vec::new();
            let is_old = sent < guard.oldest;
            if is_old {
                lines.push(json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "metadata": {}}}));
            }
            let new = guard.events.iter().filter(|(version, _, pod)| *version > sent && is_selected(pod, query));
            lines.extend(new.map(|(_, kind, pod)| json!({"type": kind, "object": pod})));
            if sent < guard.version {
                lines.push(json!({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": guard.version.to_string()}}}));
            }
            sent = guard.version;
            (lines, is_old || guard.watches != began)
        };
        for line in lines {
            let line = format!("{line}\n");
            for part in line.as_bytes().chunks(100) {
                write!(stream, "{:x}\r\n", part.len())?;
                stream.write_all(part)?;
                stream.write_all(b"\r\n")?;
            }
        }
        if ended {
            return stream.write_all(b"0\r\n\r\n");
        }
        stream.flush()?;
    }
}
