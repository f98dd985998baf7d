//! Numbers of the last minutes: for the last half minute in `/api/v1/engines`, and for each time slot of five seconds
//! in `/api/v1/history`. Unknown numbers are left out.

use serde_json::Value;

use trtllm_analysis::window::{Mark, Span};
use trtllm_engines::{EngineJudgement, EngineSlot, State, Tells};
use trtllm_records::EngineName;
use trtllm_verdict::gpu_window::{GpuMark, GpuWindow};

use super::answers::{EngineHistory, GpuHistory, GpuSlot, Slot};
use super::json::{without_nulls, write_array};
use super::numbers::Numbers;

/// Seconds of `window` in `/api/v1/engines`.
pub(super) const WINDOW: f64 = 30.0;
/// Limit of the seconds in `/api/v1/history`.
pub const MOST_SECONDS: f64 = 300.0;

/// The numbers of the last half minute.
pub(super) fn window(judged: &EngineJudgement, tells: Tells) -> Option<Numbers> {
    judged.window.span(WINDOW).map(|span| Numbers::of(&span, tells))
}

/// Slots of the last `seconds`, oldest first, of these engines and of all GPUs. `ago` counts the seconds from the end of a
/// slot to the end of the newest one.
pub fn history(state: &State, engines: &[std::sync::Arc<EngineSlot>], seconds: f64) -> String {
    let slot_seconds = trtllm_analysis::window::SLOT_SECONDS;
    let mut text = format!("{{\"apiVersion\":{},\"slotSeconds\":{slot_seconds},\"engines\":", super::API_VERSION);
    write_array(&mut text, engines.iter().map(|engine| of_engine(engine, seconds)));
    text.push_str(",\"gpus\":");
    write_array(&mut text, state.gpu_windows().iter().map(|gpu| of_gpu(gpu, seconds)));
    text + "}"
}

fn of_engine(slot: &EngineSlot, seconds: f64) -> Value {
    let tells = slot.lock().tells();
    let slots = slot.with_judged(|judged| {
        let newest = judged.window.last().map_or(0.0, |mark| mark.at);
        let recent = |(_, mark): &(Span, &Mark)| newest - mark.at < seconds;
        let recent = judged.window.slots().filter(recent);
        recent.map(|(span, mark)| Slot { ago: newest - mark.at, numbers: Numbers::of(&span, tells) }).collect()
    });
    let EngineName { model, version, labels, .. } = slot.name.clone();
    without_nulls(&EngineHistory { model, version, labels: labels.into_iter().collect(), slots })
}

fn of_gpu(gpu: &GpuWindow, seconds: f64) -> Value {
    let newest = gpu.marks().next_back().map_or(0.0, |mark| mark.at);
    let recent = gpu.marks().filter(|mark| newest - mark.at < seconds);
    let slot = |mark: &GpuMark| GpuSlot {
        ago: newest - mark.at,
        ok: mark.is_ok,
        utilization_ratio: mark.utilization,
        power_watts: mark.watts,
        clock_ratio: mark.clock_share,
    };
    without_nulls(&GpuHistory { uuid: gpu.uuid.clone(), slots: recent.map(slot).collect() })
}
