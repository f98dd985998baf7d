//! The engines of `--source auto`: starts a driver for each trtllm-serve that is found, and ends the driver when the server has
//! not been seen for --engine.forget-after.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use trtllm_config::{ORCHESTRATOR_MODEL, server_key};
use trtllm_engines::{EngineSlot, State};
use trtllm_service::shutdown::{Shutdown, Trigger};
use trtllm_sources::discovery::{self, FoundServer, Identity};
use trtllm_sources::socket::Names;

/// Once this number of engines is read, only engines at configured ports are added.
const MAX_ENGINES: usize = 64;

/// The addresses of the engines that are read. Each search asks them again.
pub(super) type Known = Arc<Mutex<Vec<String>>>;

/// An engine that was found and is read.
pub(super) struct Discovered {
    /// `http://HOST:PORT`
    pub(super) target: String,
    kind: FoundKind,
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

/// All engines of `auto`, and the findings of the last search: each address with a description of the server there.
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

impl Engines {
    /// Adds new engines, and removes engines that were replaced or not seen for `forget_after`. `taken` are the
    /// [keys](server_key) of the servers that other sources read. `start` starts the driver of a new engine.
    pub(super) fn update(
        &mut self,
        findings: Vec<FoundServer>,
        taken: &HashSet<String>,
        forget_after: Duration,
        (state, names): (&State, &Names),
        mut start: impl FnMut(&str, &FoundKind, String) -> (Arc<EngineSlot>, Trigger),
    ) {
        let now = Instant::now();
        let mut described = Vec::new();
        for FoundServer { target, configured, identity } in findings {
            let kind = match identity {
                Identity::Engine(model) => Ok(FoundKind::Engine(model)),
                Identity::Orchestrator => Ok(FoundKind::Orchestrator),
                Identity::NotReady(why) => Err(format!("trtllm-serve, not ready: {why}")),
                Identity::Other(what) => Err(format!("no trtllm-serve: {what}")),
            };
            let kind = kind.and_then(|kind| match self.leave_without_statistics(&target, &kind, state, names) {
                true => Err(without_statistics(&kind)),
                false => Ok(kind),
            });
            let what = match kind {
                Err(what) => what,
                Ok(_) if taken.contains(&server_key(&target)) => "read by another source".to_owned(),
                Ok(kind) => {
                    // A different model at the same address is a new engine, which replaces the previous one.
                    self.end(state, names, |engine| engine.target == target && engine.kind != kind);
                    let is_full = self.running.len() >= MAX_ENGINES && !configured;
                    match self.running.iter_mut().find(|engine| engine.target == target) {
                        Some(engine) => engine.last_seen = now,
                        None if is_full => {
                            described.push((target, format!("not read: {MAX_ENGINES} engines are read already")));
                            continue;
                        }
                        None => {
                            let version = names.discovered(kind.model());
                            let (slot, stop) = start(&target, &kind, version);
                            self.running.push(Discovered {
                                target: target.clone(),
                                kind: kind.clone(),
                                last_seen: now,
                                slot,
                                _stop: stop,
                            });
                        }
                    }
                    kind.describe()
                }
            };
            described.push((target, what));
        }
        described.sort();
        self.left.retain(|target, _| described.iter().any(|(address, _)| address == target));
        for (address, what) in described.iter().filter(|finding| !self.findings.contains(finding)) {
            tracing::info!(address, what, "auto: found");
        }
        let is_gone = |address: &String| described.iter().all(|(other, _)| other != address);
        for (address, what) in self.findings.iter().filter(|(address, _)| is_gone(address)) {
            tracing::info!(address, what, "auto: gone");
        }
        self.end(state, names, |engine| now.duration_since(engine.last_seen) >= forget_after);
        state.discovery.lock().clone_from(&described);
        self.findings = described;
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

    /// Model and version of the engines that `which` chooses.
    pub(super) fn names(&self, which: impl Fn(&Discovered) -> bool) -> HashSet<(String, String)> {
        let chosen = self.running.iter().filter(|engine| which(engine));
        chosen.map(|engine| (engine.slot.name.model.clone(), engine.slot.name.version.clone())).collect()
    }

    /// Ends the engines that `which` chooses: their drivers stop and their series end.
    pub(super) fn end(&mut self, state: &State, names: &Names, which: impl Fn(&Discovered) -> bool) {
        self.running.retain(|engine| {
            let stays = !which(engine);
            if !stays {
                state.remove(&engine.slot);
                names.give_back(&engine.slot.name.model, &engine.slot.name.version);
            }
            stays
        });
    }
}

fn without_statistics(kind: &FoundKind) -> String {
    format!("{}, which answers, and has no statistics (no /metrics), so it is not read", kind.describe())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_engines::{EngineOrigin, SourceIndex};
    use trtllm_records::{EngineName, Objectives};
    use trtllm_service::shutdown;

    fn finding(target: &str, configured: bool) -> FoundServer {
        FoundServer { target: target.to_owned(), configured, identity: Identity::Engine("m".to_owned()) }
    }

    #[tokio::test]
    async fn a_server_without_statistics_is_named_and_left_until_another_one_has_its_address() {
        let state = State::new(Vec::new());
        let names = Names::new(Duration::from_secs(3600), mpsc::unbounded_channel().0);
        let mut engines = Engines::default();
        let mut find = |model: &str| {
            let start = |_: &str, kind: &FoundKind, version: String| {
                let name = EngineName::new(kind.model(), &version, "auto");
                (state.add(&SourceIndex::new(0), name, EngineOrigin::default(), None), shutdown::channel().0)
            };
            let identity = Identity::Engine(model.to_owned());
            let found = FoundServer { target: "http://h:1".to_owned(), configured: true, identity };
            engines.update(vec![found], &HashSet::new(), Duration::from_secs(3600), (&state, &names), start);
            (engines.targets().len(), engines.findings[0].1.contains("has no statistics"))
        };
        assert_eq!(find("bge"), (1, false));
        state.slots()[0].lock().source.no_statistics = true;
        assert_eq!([find("bge"), find("bge")], [(0, true), (0, true)]);
        assert_eq!(find("llama"), (1, false));
    }

    #[tokio::test]
    async fn many_servers_from_the_process_list_displace_no_configured_or_known_server() {
        let state = State::new(Vec::new());
        let names = Names::new(Duration::from_secs(3600), mpsc::unbounded_channel().0);
        let mut engines = Engines::default();
        let mut find = |findings| {
            let start = |_: &str, kind: &FoundKind, version: String| {
                let (model, objectives) = (kind.model().to_owned(), Objectives::default());
                let name = EngineName { model, version, labels: Vec::new(), source: "trtllm-serve", objectives };
                (state.add(&SourceIndex::new(0), name, EngineOrigin::default(), None), shutdown::channel().0)
            };
            engines.update(findings, &HashSet::new(), Duration::from_secs(3600), (&state, &names), start);
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
