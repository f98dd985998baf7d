//! The engines of `--source auto` and `kubernetes:`: starts a driver for each trtllm-serve that is found, and ends the driver when the
//! server has not been seen for --engine.forget-after, or its pod is gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use trtllm_config::{DEFAULT_VERSION, ORCHESTRATOR_MODEL, server_key};
use trtllm_engines::{EngineSlot, State};
use trtllm_service::shutdown::{Shutdown, Trigger};
use trtllm_sources::discovery::{self, FoundPod, FoundServer, Identity};
#[cfg(feature = "kubernetes")]
use trtllm_sources::kubernetes::{PodSelection, Pods};
use trtllm_sources::socket::Names;

/// Time from the change of a pod to the search for its server.
#[cfg(feature = "kubernetes")]
const SETTLE: Duration = Duration::from_millis(200);
/// Once this number of engines is read, only engines at configured ports are added.
const MAX_ENGINES: usize = 64;

/// The addresses of the engines that are read. Each search asks them again.
pub(super) type Known = Arc<Mutex<Vec<String>>>;

/// An engine that was found and is read.
pub(super) struct Discovered {
    /// `http://HOST:PORT`
    pub(super) target: String,
    kind: FoundKind,
    /// The UID of its pod.
    pod: Option<String>,
    last_seen: Instant,
    slot: Arc<EngineSlot>,
    _stop: Trigger,
}

/// What kind of server was found at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FoundKind {
    /// An engine with this model.
    Engine(String),
    Orchestrator,
}

impl FoundKind {
    pub(super) fn model(&self) -> &str {
        match self {
            Self::Engine(model) => model,
            Self::Orchestrator => ORCHESTRATOR_MODEL,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Engine(model) => format!("trtllm-serve with model {model}"),
            Self::Orchestrator => "trtllm-serve disaggregated, an orchestrator".to_owned(),
        }
    }
}

/// All engines of `auto` or `kubernetes:`, and the findings of the last search: each address with a description of the server there.
#[derive(Default)]
pub(super) struct Engines {
    running: Vec<Discovered>,
    /// Servers that answered that they have no statistics, so they are not read: each address and what was found there.
    left: HashMap<String, FoundKind>,
    findings: Vec<(String, String)>,
}

/// Searches until shutdown and sends the findings.
pub(super) async fn search(
    ports: Vec<u16>,
    known: Known,
    found: mpsc::UnboundedSender<Vec<FoundServer>>,
    mut stop: Shutdown,
) {
    let mut ticks = tokio::time::interval(discovery::INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let findings = async {
            ticks.tick().await;
            let known = known.lock().clone();
            discovery::search(ports.clone(), known).await
        };
        tokio::select! {
            findings = findings => drop(found.send(findings)),
            () = stop.wait() => return,
        }
    }
}

/// Follows pods until shutdown and sends the findings.
#[cfg(feature = "kubernetes")]
pub(super) async fn follow_pods(
    selection: &PodSelection,
    found: mpsc::UnboundedSender<Vec<FoundServer>>,
    mut stop: Shutdown,
) {
    let pods = Pods::default();
    let searching = async {
        loop {
            drop(found.send(pods.search().await));
            let _ = tokio::time::timeout(discovery::INTERVAL, pods.changed()).await;
            // Several changes often follow each other.
            tokio::time::sleep(SETTLE).await;
        }
    };
    tokio::select! {
        () = pods.follow(selection) => {}
        () = searching => {}
        () = stop.wait() => {}
    }
}

impl Engines {
    /// Adds new engines, and removes engines that were replaced or not seen for `forget_after`. `taken` are the
    /// [keys](server_key) of the servers that other sources read. `search` names the source in the log. `start` starts the
    /// driver of a new engine.
    pub(super) fn update(
        &mut self,
        findings: Vec<FoundServer>,
        taken: &HashSet<String>,
        forget_after: Duration,
        (state, names, search): (&State, &Names, &str),
        mut start: impl FnMut(&str, &FoundKind, Option<&FoundPod>, String) -> (Arc<EngineSlot>, Trigger),
    ) {
        let now = Instant::now();
        let (mut described, mut pods, mut failed) = (Vec::new(), HashSet::new(), None);
        for FoundServer { mut target, configured, identity, pod } in findings {
            let uid = pod.as_ref().map(|pod| pod.uid.clone());
            let known = self.running.iter().find(|engine| uid.is_some() && engine.pod == uid);
            if let Some(known) = known.filter(|_| target.is_empty()) {
                target.clone_from(&known.target);
            }
            if uid.is_some() && !target.is_empty() {
                // A pod may get another address, and an address another pod.
                self.end(state, names, |engine| (engine.target == target) != (engine.pod == uid));
            }
            if matches!(identity, Identity::Unknown(_)) {
                failed = Some(target.clone());
            }
            let what = match self.identify(&target, identity, pod.as_ref(), state, names) {
                Err(what) => what,
                Ok(_) if taken.contains(&server_key(&target)) => "read by another source".to_owned(),
                Ok((kind, what)) => {
                    // A different model at the same address is a new engine, which replaces the previous one.
                    self.end(state, names, |engine| engine.target == target && engine.kind != kind);
                    pods.extend(uid.clone());
                    // A pod that never runs again may stay in the list for days.
                    let is_alive = pod.as_ref().is_none_or(|pod| !pod.ended);
                    if let Some(engine) = self.running.iter_mut().find(|engine| engine.target == target) {
                        engine.last_seen = if is_alive { now } else { engine.last_seen };
                        what
                    } else if self.running.len() >= MAX_ENGINES && !configured {
                        format!("not read: {MAX_ENGINES} engines are read already")
                    } else {
                        // The labels of pods tell replicas apart.
                        let version =
                            if uid.is_some() { DEFAULT_VERSION.to_owned() } else { names.discovered(kind.model()) };
                        let (slot, stop) = start(&target, &kind, pod.as_ref(), version);
                        let target = target.clone();
                        self.running.push(Discovered { target, kind, pod: uid, last_seen: now, slot, _stop: stop });
                        what
                    }
                }
            };
            match pod {
                None => described.push((target, what)),
                Some(pod) => {
                    let running = self.running.iter().filter(|engine| engine.pod.as_ref() == Some(&pod.uid));
                    running.for_each(|engine| engine.slot.lock().source.pod_trouble.clone_from(&pod.trouble));
                    let name = format!("{}/{}", pod.name.namespace, pod.name.pod);
                    let address = if target.is_empty() { name } else { format!("{name} {target}") };
                    described.push((address, what));
                }
            }
        }
        self.end(state, names, |engine| engine.pod.as_ref().is_some_and(|pod| !pods.contains(pod)));
        self.end(state, names, |engine| now.duration_since(engine.last_seen) >= forget_after);
        described.sort();
        self.left.retain(|target, _| described.iter().any(|(address, _)| address.ends_with(target.as_str())));
        self.log_changes(&described, failed.as_deref(), search);
        state.discovery.lock().clone_from(&described);
        self.findings = described;
    }

    /// The kind of a server that is read, and words for it. Otherwise, why it is not read.
    fn identify(
        &mut self,
        target: &str,
        identity: Identity,
        pod: Option<&FoundPod>,
        state: &State,
        names: &Names,
    ) -> Result<(FoundKind, String), String> {
        let (kind, not_ready) = match identity {
            Identity::Engine(model) => (FoundKind::Engine(model), None),
            Identity::Orchestrator => (FoundKind::Orchestrator, None),
            Identity::NotReady(why) => {
                let why = pod.and_then(|pod| pod.trouble.as_ref()).map_or(why, |trouble| trouble.why().to_owned());
                // A server that hangs is still there.
                let running = || self.running.iter().find(|engine| engine.target == target);
                let by_pod = pod.and_then(|pod| self.kind_before_answer(pod, target));
                let Some(kind) = by_pod.or_else(|| running().map(|engine| engine.kind.clone())) else {
                    return Err(format!("trtllm-serve, not ready: {why}"));
                };
                (kind, Some(why))
            }
            Identity::Other(what) => return Err(format!("no trtllm-serve: {what}")),
            Identity::Left(why) => return Err(format!("not read: {why}")),
            Identity::Unknown(why) => return Err(why),
        };
        let what = kind.describe();
        if self.leave_without_statistics(target, &kind, state, names) {
            return Err(format!("{what}, which answers, and has no statistics (no /metrics), so it is not read"));
        }
        Ok((kind, not_ready.map(|why| format!("{what}, not ready: {why}")).unwrap_or(what)))
    }

    /// Logs findings that the last search did not have, and addresses that only that one had. `failed` could not search.
    fn log_changes(&self, described: &[(String, String)], failed: Option<&str>, search: &str) {
        for (address, what) in described.iter().filter(|finding| !self.findings.contains(finding)) {
            if failed == Some(address) {
                tracing::warn!(
                    address,
                    what,
                    "{search}: servers cannot be found; engines that are known are still read"
                );
            } else {
                tracing::info!(address, what, "{search}: found");
            }
        }
        let is_gone = |address: &String| described.iter().all(|(other, _)| other != address);
        for (address, what) in self.findings.iter().filter(|(address, _)| is_gone(address)) {
            tracing::info!(address, what, "{search}: gone");
        }
    }

    /// The kind of an engine that does not answer now: the one of the engine that is read already, or that of the command line while
    /// the container starts. Without it, nobody would see a model that never loads.
    fn kind_before_answer(&self, pod: &FoundPod, target: &str) -> Option<FoundKind> {
        let known = self.running.iter().find(|engine| engine.pod.as_ref() == Some(&pod.uid));
        let starts = pod.trouble.is_some() && !pod.ended && !target.is_empty();
        let by_command = || pod.model.clone().filter(|_| starts).map(FoundKind::Engine);
        known.map(|engine| engine.kind.clone()).or_else(by_command)
    }

    /// Ends an engine whose server has told its driver that it has no statistics. Returns whether the server is left
    /// alone. Another server at the address is read again.
    fn leave_without_statistics(&mut self, target: &str, kind: &FoundKind, state: &State, names: &Names) -> bool {
        let lacks = |engine: &Discovered| {
            engine.target == target && engine.kind == *kind && engine.slot.lock().source.no_statistics
        };
        if self.running.iter().any(lacks) {
            self.left.insert(target.to_owned(), kind.clone());
            self.end(state, names, lacks);
        }
        self.left.get(target) == Some(kind)
    }

    /// The addresses of the engines.
    pub(super) fn targets(&self) -> Vec<String> {
        self.running.iter().map(|engine| engine.target.clone()).collect()
    }

    /// The reserved models and versions of the engines that `which` chooses.
    pub(super) fn names(&self, which: impl Fn(&Discovered) -> bool) -> HashSet<(String, String)> {
        let chosen = self.running.iter().filter(|engine| engine.pod.is_none() && which(engine));
        chosen.map(|engine| (engine.slot.name.model.clone(), engine.slot.name.version.clone())).collect()
    }

    /// Ends the engines that `which` chooses: their drivers stop and their series end.
    pub(super) fn end(&mut self, state: &State, names: &Names, which: impl Fn(&Discovered) -> bool) {
        self.running.retain(|engine| {
            let stays = !which(engine);
            if !stays {
                let name = &engine.slot.name;
                let (model, version) = (&name.model, &name.version);
                tracing::info!(
                    model,
                    version,
                    "engine removed: its server is gone, replaced, read by another source, or without statistics"
                );
                state.remove(&engine.slot);
                if engine.pod.is_none() {
                    names.give_back(&engine.slot.name.model, &engine.slot.name.version);
                }
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_engines::{EngineOrigin, SourceIndex};
    use trtllm_records::{EngineName, Objectives};
    use trtllm_service::shutdown;

    fn finding(target: &str, configured: bool) -> FoundServer {
        FoundServer { target: target.to_owned(), configured, identity: Identity::Engine("m".to_owned()), pod: None }
    }

    #[tokio::test]
    async fn a_server_without_statistics_is_named_and_left_until_another_one_has_its_address() {
        let state = State::new(Vec::new());
        let names = Names::new(Duration::from_secs(3600), mpsc::unbounded_channel().0);
        let mut engines = Engines::default();
        let mut find = |model: &str| {
            let start = |_: &str, kind: &FoundKind, _: Option<&FoundPod>, version: String| {
                let name = EngineName::new(kind.model(), &version, "auto");
                (state.add(&SourceIndex::new(0), name, EngineOrigin::default(), None), shutdown::channel().0)
            };
            let identity = Identity::Engine(model.to_owned());
            let found = FoundServer { target: "http://h:1".to_owned(), configured: true, identity, pod: None };
            engines.update(vec![found], &HashSet::new(), Duration::from_secs(3600), (&state, &names, "auto"), start);
            (engines.targets().len(), engines.findings[0].1.contains("has no statistics"))
        };
        assert_eq!(find("bge"), (1, false));
        state.slots()[0].lock().source.no_statistics = true;
        assert_eq!([find("bge"), find("bge")], [(0, true), (0, true)]);
        assert_eq!(find("llama"), (1, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_hangs_and_is_still_found_is_not_forgotten() {
        let state = State::new(Vec::new());
        let names = Names::new(Duration::from_secs(3600), mpsc::unbounded_channel().0);
        let mut engines = Engines::default();
        let mut find = |found: Option<Identity>| {
            let start = |_: &str, kind: &FoundKind, _: Option<&FoundPod>, version: String| {
                let name = EngineName::new(kind.model(), &version, "auto");
                (state.add(&SourceIndex::new(0), name, EngineOrigin::default(), None), shutdown::channel().0)
            };
            let found = found.map(|identity| FoundServer { identity, ..finding("http://h:1", true) });
            let forget_after = Duration::from_secs(60);
            engines.update(found.into_iter().collect(), &HashSet::new(), forget_after, (&state, &names, "auto"), start);
            engines.targets().len()
        };
        assert_eq!(find(Some(Identity::NotReady("it loads".to_owned()))), 0, "its model is not known");
        assert_eq!(find(Some(Identity::Engine("m".to_owned()))), 1);
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(30)).await;
            assert_eq!(find(Some(Identity::NotReady("it does not answer".to_owned()))), 1);
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(find(None), 0);
    }

    #[tokio::test]
    async fn many_servers_from_the_process_list_displace_no_configured_or_known_server() {
        let state = State::new(Vec::new());
        let names = Names::new(Duration::from_secs(3600), mpsc::unbounded_channel().0);
        let mut engines = Engines::default();
        let mut find = |findings| {
            let start = |_: &str, kind: &FoundKind, _: Option<&FoundPod>, version: String| {
                let (model, objectives) = (kind.model().to_owned(), Objectives::default());
                let name = EngineName { model, version, labels: Vec::new(), source: "trtllm-serve", objectives };
                (state.add(&SourceIndex::new(0), name, EngineOrigin::default(), None), shutdown::channel().0)
            };
            engines.update(findings, &HashSet::new(), Duration::from_secs(3600), (&state, &names, "auto"), start);
            engines.targets()
        };
        let known = find(vec![finding("http://10.0.0.0:1", false)]);
        let fakes = (1..=2 * MAX_ENGINES).map(|number| finding(&format!("http://10.0.0.{number}:1"), false));
        let full = find(fakes.clone().collect());
        assert_eq!((full.len(), &full[0]), (MAX_ENGINES, &known[0]));
        let configured = find(fakes.chain([finding("http://127.0.0.1:8000", true)]).collect());
        assert_eq!(configured[..MAX_ENGINES], full);
        assert_eq!(configured[MAX_ENGINES..], ["http://127.0.0.1:8000"]);
    }
}
