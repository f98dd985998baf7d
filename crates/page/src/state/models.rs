//! Background work on each engine: simulates its capacity once a minute, and writes its baseline every ten minutes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trtllm_service::shutdown::Shutdown;
use trtllm_what_if::baselines::{Run, Snapshot};
use trtllm_what_if::{Present, capacity};

use super::judging::RECENT;
use super::{BaselineFiles, EngineSlot, State};

/// How often an engine's capacity is simulated. With many engines, simulations are a second apart: each keeps a CPU busy.
const EVERY: Duration = Duration::from_secs(60);
const LEAST_BETWEEN: Duration = Duration::from_secs(1);
/// Timeout for a copy of the engine's accumulated statistics (its fold), which it publishes when a poll ends.
const FOLD_WITHIN: Duration = Duration::from_secs(5);
/// Least number of seconds between two baselines of an engine, and between the start of a run and its first baseline.
const KEPT_EVERY: f64 = 590.0;

impl State {
    /// Works on one engine after the other, until the end of the process.
    pub async fn keep_models(self: Arc<Self>, mut shutdown: Shutdown) {
        loop {
            let slots = Arc::clone(&self.slots());
            let pause = (EVERY / slots.len().max(1) as u32).max(LEAST_BETWEEN);
            for slot in slots.iter() {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = shutdown.wait() => return,
                }
                slot.update_model(self.baselines.get()).await;
            }
            if slots.is_empty() {
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = shutdown.wait() => return,
                }
            }
        }
    }
}

impl EngineSlot {
    async fn update_model(self: &Arc<Self>, files: Option<&Arc<BaselineFiles>>) {
        // The fold of an engine that has run no iteration in the last minute is not copied.
        let recent = self.with_judged(|judged| judged.window.span(RECENT));
        if recent.is_none_or(|span| span.sums.iterations <= 0.0) {
            return;
        }
        let copied = tokio::time::timeout(FOLD_WITHIN, self.read_fold()).await;
        let Some(fold) = copied.ok().and_then(Result::ok) else { return };
        let present = self.with_judged(|judged| Present::of(&fold, &judged.window));
        drop(fold);
        if let Some(files) = files {
            self.keep(files, &present);
        }
        let simulated = tokio::task::spawn_blocking(move || capacity(&present));
        let capacity = simulated.await.ok().flatten().map(|capacity| capacity.value);
        self.judged.lock().capacity = capacity;
    }

    /// Reads the best hours of the engine the first time, and writes a baseline every ten minutes. Nothing waits for the disk.
    fn keep(self: &Arc<Self>, files: &Arc<BaselineFiles>, present: &Present) {
        let (at, kept_at) =
            self.with_judged(|judged| (judged.window.last().map_or(0.0, |mark| mark.at), judged.kept_at));
        if kept_at.is_some_and(|kept_at| at - kept_at < KEPT_EVERY) {
            return;
        }
        let Some(writing) = files.begin() else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let run = self.run();
        let is_settled = now - run.since >= KEPT_EVERY && !present.equal_work.is_empty();
        let snapshot = is_settled.then(|| Snapshot::of(present.clone(), run, now));
        let slot = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let best = slot.with_judged(|judged| judged.best);
            let best = writing.add(&slot.name, snapshot, best, now);
            let mut judged = slot.judged.lock();
            judged.best.merge(&best, now);
            judged.kept_at = Some(at);
        });
    }

    /// The present run of the engine: its start and its settings.
    #[must_use]
    pub fn run(&self) -> Run {
        let snapshot = self.snapshot();
        let about = &snapshot.about;
        let names = [("backend", about.backend.clone()), ("engine_version", about.version.clone())];
        let told = snapshot.settings().into_iter().chain(names);
        let configuration: BTreeMap<String, String> =
            told.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        Run { since: self.with_judged(super::EngineJudgement::run_since), configuration }
    }
}
