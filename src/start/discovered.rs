//! The engines of `--source auto`: starts a driver for each trtllm-serve that is found, and ends those that are gone for long.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::shutdown::{Shutdown, Trigger};
use crate::sources::discovery::{self, Finding, Verdict};
use crate::sources::socket::Names;
use crate::state::{EngineSlot, State};

/// Engines that are read at once.
const MAX_ENGINES: usize = 64;

/// An engine that was found.
pub(super) struct Discovered {
    target: String,
    model: String,
    last_seen: Instant,
    slot: Arc<EngineSlot>,
    _stop: Trigger,
}

/// All engines of one `auto`, and what was logged about the rest.
#[derive(Default)]
pub(super) struct Engines {
    running: Vec<Discovered>,
    told: Vec<(String, String)>,
}

/// Searches until shutdown.
pub(super) async fn search(ports: Vec<u16>, found: mpsc::UnboundedSender<Vec<Finding>>, mut stop: Shutdown) {
    let mut ticks = tokio::time::interval(discovery::INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let findings = async {
            ticks.tick().await;
            discovery::search(ports.clone()).await
        };
        tokio::select! {
            findings = findings => drop(found.send(findings)),
            () = stop.wait() => return,
        }
    }
}

impl Engines {
    /// Starts engines that are new and ends those that were replaced or not seen for `forget_after`. `taken` are the servers
    /// that other sources read; `start` starts the driver of a new engine.
    pub(super) fn update(
        &mut self,
        findings: Vec<Finding>,
        taken: &HashSet<String>,
        forget_after: Duration,
        (state, names): (&State, &Names),
        mut start: impl FnMut(&str, &str, String) -> (Arc<EngineSlot>, Trigger),
    ) {
        let now = Instant::now();
        let mut told = Vec::new();
        for Finding { target, verdict } in findings {
            let what = match verdict {
                Verdict::Engine(_) if taken.contains(&target) => "read by another source".to_owned(),
                Verdict::Engine(model) => {
                    // Another model at the same address is another engine.
                    self.end(state, names, |engine| engine.target == target && engine.model != model);
                    let is_full = self.running.len() >= MAX_ENGINES;
                    match self.running.iter_mut().find(|engine| engine.target == target) {
                        Some(engine) => engine.last_seen = now,
                        None if is_full => {
                            told.push((target, format!("not read: {MAX_ENGINES} engines are read already")));
                            continue;
                        }
                        None => {
                            let version = names.discovered(&model);
                            let (slot, stop) = start(&target, &model, version);
                            self.running.push(Discovered {
                                target: target.clone(),
                                model: model.clone(),
                                last_seen: now,
                                slot,
                                _stop: stop,
                            });
                        }
                    }
                    format!("trtllm-serve with model {model}")
                }
                Verdict::NotReady(why) => format!("trtllm-serve, not ready: {why}"),
                Verdict::Other(what) => format!("no trtllm-serve: {what}"),
            };
            told.push((target, what));
        }
        for (address, what) in told.iter().filter(|finding| !self.told.contains(finding)) {
            tracing::info!(address, what, "auto: found");
        }
        for (address, what) in self.told.iter().filter(|(address, _)| !told.iter().any(|(other, _)| other == address)) {
            tracing::info!(address, what, "auto: gone");
        }
        self.end(state, names, |engine| now.duration_since(engine.last_seen) >= forget_after);
        state.discovery.store(Arc::new(told.clone()));
        self.told = told;
    }

    /// Ends these engines: their drivers stop and their series end.
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
