//! Judges each engine every five seconds: keeps the windows of engines and GPUs, and publishes what limits each engine.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use trtllm_engine::window::{Mark, SLOT_SECONDS, Window};
use trtllm_model::gpu::{GpuInventory, GpuSnapshot, GpuState};
use trtllm_service::shutdown::Shutdown;
use trtllm_verdict::gpu_window::{GpuMark, GpuWindow};
use trtllm_verdict::judge::{Steady, judge};
use trtllm_verdict::reading::{Given, Reading, Silence};

use super::{EngineSlot, EngineSnapshot, StartPhase, State};

/// The last five minutes of an engine, and what is concluded from them.
#[derive(Debug, Clone, Default)]
pub struct Judged {
    pub window: Window,
    pub verdict: Steady,
    /// Iterations of the last minute ÷ what the engine's own past says for equal work.
    pub slowdown: Option<f64>,
}

/// The windows of all GPUs.
pub(super) type GpuWindows = Mutex<Vec<GpuWindow>>;

impl State {
    /// Judges until the end of the process.
    pub async fn keep_judging(self: Arc<Self>, mut shutdown: Shutdown) {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(SLOT_SECONDS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                    self.judge(began.elapsed().as_secs_f64(), wall);
                }
                () = shutdown.wait() => return,
            };
        }
    }

    /// Ends a slot at `at` seconds of a clock that never runs backwards. `wall`: seconds since 1970.
    pub fn judge(&self, at: f64, wall: f64) {
        let inventory = self.gpus();
        self.mark_gpus(&inventory, at);
        for slot in self.slots().iter() {
            let gpus = self.gpus_of(slot);
            slot.judge(&gpus, at, wall);
        }
        self.changes.engine();
    }

    fn mark_gpus(&self, inventory: &GpuInventory, at: f64) {
        let mut windows = self.gpu_windows.lock();
        windows.retain(|window| inventory.gpus.iter().any(|gpu| gpu.identity.uuid == window.uuid));
        for gpu in &inventory.gpus {
            let uuid = &gpu.identity.uuid;
            let known = windows.iter().position(|window| window.uuid == *uuid);
            let place = known.unwrap_or_else(|| {
                windows.push(GpuWindow::new(uuid.clone()));
                windows.len() - 1
            });
            if let Some(window) = windows.get_mut(place) {
                window.push(mark(gpu, at));
            }
        }
    }

    /// The windows of the GPUs that serve an engine, if they are known.
    fn gpus_of(&self, slot: &EngineSlot) -> Vec<GpuWindow> {
        let Some(of_engine) = slot.gpus() else { return Vec::new() };
        let windows = self.gpu_windows.lock();
        windows.iter().filter(|window| of_engine.uuids.contains(&window.uuid)).cloned().collect()
    }

    /// The windows of all GPUs.
    #[must_use]
    pub fn gpu_windows(&self) -> Vec<GpuWindow> {
        self.gpu_windows.lock().clone()
    }
}

fn mark(gpu: &GpuSnapshot, at: f64) -> GpuMark {
    let readings = &gpu.readings;
    let throttle = &readings.throttle_ns;
    let seconds = |nanos: [Option<u64>; 3]| nanos.into_iter().flatten().map(|nanos| nanos as f64 / 1e9).sum();
    let clocks = (readings.clock_hertz.sm, readings.health.clock_max_hertz.sm);
    GpuMark {
        at,
        utilization: readings.utilization_ratio,
        watts: readings.power_usage_watts,
        clock_share: clocks.0.zip(clocks.1).filter(|(_, max)| *max > 0).map(|(now, max)| now as f64 / max as f64),
        throttled_by_power: seconds([throttle.power, None, None]),
        throttled_by_heat: seconds([throttle.thermal, throttle.sw_thermal_slowdown, throttle.hw_thermal_slowdown]),
        throttled_by_hardware: seconds([throttle.hw_power_brake_slowdown, throttle.reliability, None]),
        is_ok: gpu.state == GpuState::Ok,
    }
}

impl EngineSlot {
    fn judge(&self, gpus: &[GpuWindow], at: f64, wall: f64) {
        let snapshot = self.snapshot();
        // An orchestrator runs no iterations.
        if snapshot.orchestrator.is_some() {
            return;
        }
        let mut judged = self.judged.lock();
        let latest = snapshot.latest.as_ref();
        let parts = (&snapshot.totals, &snapshot.requests, latest, snapshot.iteration_sums);
        judged.window.push(Mark::of_parts(parts, snapshot.costs, at));
        let given = Given {
            state: snapshot.state,
            silence: silence(&snapshot, wall),
            window: &judged.window,
            gpus,
            is_pytorch: snapshot.about.backend.as_deref() != Some("tensorrt"),
            objectives: snapshot.requests.objectives.map(|objectives| objectives.limits).unwrap_or_default(),
            before: judged.verdict.cause(),
        };
        let reading = Reading::of(&given);
        let verdict = reading.as_ref().and_then(|reading| judge(reading, wall));
        judged.slowdown = reading.and_then(|reading| reading.slowdown());
        judged.verdict.follow(verdict);
    }

    /// Reads the last five minutes and the verdict. The engine is not judged while `read` runs.
    pub fn with_judged<T>(&self, read: impl FnOnce(&Judged) -> T) -> T {
        read(&self.judged.lock())
    }
}

/// Why the engine cannot be read, if it cannot. A socket that waits for a publisher is not silent.
fn silence(snapshot: &EngineSnapshot, wall: f64) -> Option<Silence> {
    let source = &snapshot.source;
    let since = source.unanswered_since_us? as f64 / 1e6;
    let failure = source.last_failure.as_ref();
    let is_loading = source.loading.is_some()
        || failure.is_some_and(|failure| failure.not_ready)
        || !source.ready && source.start_phase() == StartPhase::Loading;
    let startup: f64 = snapshot.about.startup.values().sum();
    let why = failure.map(|failure| failure.text.clone()).or(source.loading.map(str::to_owned));
    Some(Silence {
        seconds: (wall - since).max(0.0),
        why: why.unwrap_or_else(|| "the last poll failed".to_owned()),
        is_loading,
        longest_load: (startup > 0.0).then_some(startup),
    })
}
