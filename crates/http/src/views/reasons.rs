//! Why an engine is in its state, in words: one sentence for the API, the page for people, and `trtllm-doctor`, and one without
//! addresses for `/readyz`, which everybody may read.

use trtllm_engines::{Engine, SourceStatus, StartPhase};
use trtllm_fold::orchestrator::OrchestratorTotals;
use trtllm_fold::{EngineState, Latest};
use trtllm_records::PollFailure;
use trtllm_records::gpu::{GpuInventory, NvmlState};

use super::numbers::workers;

const NOT_POLLED: &str = "not polled yet";
const WEDGED: &str = "no batch runs, active requests are at their limit and the KV cache is nearly full: transfers that were \
                      cancelled may have kept their blocks; restart the engine";

/// The phase of an engine that is starting.
pub(super) fn start_phase(engine: &Engine) -> Option<StartPhase> {
    (engine.state == EngineState::Starting).then(|| engine.source.start_phase())
}

/// The cause of the state. It may name the address of the source.
pub(super) fn why(engine: &Engine) -> String {
    let source = &engine.source;
    let phase = start_phase(engine);
    if let (Some(totals), EngineState::Busy | EngineState::Idle) = (engine.orchestrator(), engine.state)
        && source.last_failure.is_none()
        && source.notice.or(source.endpoint_error.as_deref()).is_none()
    {
        return of_orchestrator(totals, engine.state == EngineState::Busy);
    }
    if let Some(why) = source.pod_failure() {
        return why;
    }
    match (&source.last_failure, source.loading) {
        (_, Some(loading)) => loading.to_owned(),
        (Some(failure), _) => with_lead(source, phase, &failure.text),
        (None, None) if is_wedged(engine) => WEDGED.to_owned(),
        (None, None) => {
            let notice = source.notice.or(source.endpoint_error.as_deref());
            notice.unwrap_or_else(|| of_state(engine.state, phase)).to_owned()
        }
    }
}

/// The state of an orchestrator and the workers of its sides. `busy`: requests arrive.
fn of_orchestrator(totals: &OrchestratorTotals, busy: bool) -> String {
    let sides: Vec<String> = workers(totals)
        .into_iter()
        .filter_map(|(side, ready, minimal)| {
            let needed = minimal.filter(|minimal| ready < Some(*minimal)).map(|minimal| format!(" of {minimal}"));
            Some(format!("{}{} {}", ready?, needed.unwrap_or_default(), side.name()))
        })
        .collect();
    let state = match (totals.ready, busy) {
        (Some(false), _) => "the orchestrator is not ready",
        (_, true) => "requests are being served",
        (_, false) => "no requests",
    };
    if sides.is_empty() { state.to_owned() } else { format!("{state}; workers: {}", sides.join(", ")) }
}

/// Whether the engine hangs because it can take no further request.
fn is_wedged(engine: &Engine) -> bool {
    engine.state == EngineState::Stalled && engine.latest().is_some_and(Latest::is_blocked)
}

/// The problem of the source, without addresses. `None` if the last poll succeeded.
pub(super) fn without_addresses(engine: &Engine) -> Option<String> {
    let source = &engine.source;
    if let Some(why) = source.pod_failure() {
        return Some(why);
    }
    match (&source.last_failure, source.loading) {
        (_, Some(loading)) => Some(loading.to_owned()),
        (Some(PollFailure { kind, .. }), _) => {
            let error = format!("{} ({}); see the log", kind.words(), kind.name());
            Some(with_lead(source, Some(phase_of(source)), &error))
        }
        (None, None) => (!source.ready).then(|| NOT_POLLED.to_owned()),
    }
}

/// A source that has answered before is not starting, whatever the state of its engine.
fn phase_of(source: &SourceStatus) -> StartPhase {
    if source.ready { StartPhase::NoRecord } else { source.start_phase() }
}

fn with_lead(source: &SourceStatus, phase: Option<StartPhase>, error: &str) -> String {
    let lead = source.meaning_of_503().unwrap_or(match phase {
        _ if source.is_closed() => "the source cannot be opened",
        Some(StartPhase::NeverAnswered) => "the source has never answered",
        _ => "the last poll failed",
    });
    format!("{lead}: {error}")
}

/// Why there is no GPU, in one sentence.
pub(super) fn no_gpus(inventory: &GpuInventory) -> &'static str {
    match inventory.nvml {
        NvmlState::Off => "GPU metrics are switched off (--gpu off).",
        NvmlState::Starting => "NVML is being initialized.",
        NvmlState::Up if inventory.excluded > 0 => {
            "NVML works, but no GPU is shown: --gpu.uuid takes UUIDs (nvidia-smi -L), and a GPU needs one."
        }
        NvmlState::Up => "NVML works, but no GPU is visible to the exporter.",
        NvmlState::LibraryNotFound => {
            "NVIDIA's library libnvidia-ml.so.1 was not found. On a GPU node, make it visible to the exporter."
        }
        NvmlState::DriverNotLoaded => "The NVIDIA driver is not loaded.",
        NvmlState::VersionMismatch => {
            "The NVIDIA library and driver have different versions. Restart the node or the container."
        }
        NvmlState::NoPermission => "The exporter may not open the GPU devices.",
        NvmlState::Failed => "NVML failed; the log has the reason.",
        NvmlState::Released => "NVML is closed on request.",
    }
}

fn of_state(state: EngineState, phase: Option<StartPhase>) -> &'static str {
    match (state, phase) {
        (EngineState::Starting, Some(StartPhase::NoPublisher)) => "no publisher has connected yet",
        (EngineState::Starting, Some(StartPhase::NoRecord)) => {
            "the source answers, but has sent no record yet: the model loads, or the engine has had no request"
        }
        (EngineState::Starting, _) => NOT_POLLED,
        (EngineState::Busy, _) => "requests are being served",
        (EngineState::Idle, _) => "no requests",
        (EngineState::Stalled, _) => "requests are active, but no batch runs",
        (EngineState::Unreachable, _) => "the source does not answer",
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers::OrchestratorJson;
    use super::*;
    use trtllm_fold::orchestrator::OrchestratorFold;
    use trtllm_records::orchestrator::WorkerCounts;
    use trtllm_records::{ErrorKind, OrchestratorReading};

    #[test]
    fn gpus_that_the_flag_excludes_are_not_called_invisible() {
        let why = |excluded| no_gpus(&GpuInventory { nvml: NvmlState::Up, excluded, ..GpuInventory::default() });
        assert!(why(0).contains("no GPU is visible") && why(2).contains("--gpu.uuid takes UUIDs"));
    }

    fn failure(kind: ErrorKind, not_ready: bool) -> Option<PollFailure> {
        Some(PollFailure { kind, text: "cannot connect to http://10.0.0.7:9".to_owned(), not_ready })
    }

    /// An engine in this state after a poll of its source.
    fn polled(state: EngineState, change: impl FnOnce(&mut SourceStatus)) -> Engine {
        let mut engine = Engine { state, ..Engine::starting() };
        engine.source.last_poll_us = Some(1);
        change(&mut engine.source);
        engine
    }

    #[test]
    fn loading_never_answered_no_record_no_publisher_and_idle_are_told_apart() {
        use EngineState::{Idle, Starting};
        let words = |engine: &Engine| (start_phase(engine).map(StartPhase::name), why(engine));
        let cases = [
            (Engine::starting(), Some("loading"), "not polled yet"),
            (polled(Starting, |source| source.loading = Some("it loads")), Some("loading"), "it loads"),
            (
                polled(Starting, |source| source.last_failure = failure(ErrorKind::HttpStatus, true)),
                Some("loading"),
                "the model loads: cannot connect to http://10.0.0.7:9",
            ),
            (
                polled(EngineState::Unreachable, |source| {
                    source.server_has_served = true;
                    source.last_failure = failure(ErrorKind::HttpStatus, true);
                }),
                None,
                "the server has lost its engine: cannot connect to http://10.0.0.7:9",
            ),
            (
                polled(Starting, |source| source.last_failure = failure(ErrorKind::Connect, false)),
                Some("never_answered"),
                "the source has never answered: cannot connect to http://10.0.0.7:9",
            ),
            (
                polled(Starting, |source| {
                    source.last_poll_us = None;
                    source.last_failure = failure(ErrorKind::Connect, false);
                }),
                Some("never_answered"),
                "the source cannot be opened: cannot connect to http://10.0.0.7:9",
            ),
            (
                polled(Starting, |source| {
                    source.ready = true;
                    source.last_failure = failure(ErrorKind::Connect, false);
                }),
                Some("no_record"),
                "the last poll failed: cannot connect to http://10.0.0.7:9",
            ),
            (
                polled(Starting, |source| (source.ready, source.last_success_us) = (true, Some(1))),
                Some("no_record"),
                "the source answers, but has sent no record yet: the model loads, or the engine has had no request",
            ),
            (
                polled(Starting, |source| (source.ready, source.connections) = (true, Some(0))),
                Some("no_publisher"),
                "no publisher has connected yet",
            ),
            (polled(Idle, |source| source.ready = true), None, "no requests"),
        ];
        for (engine, phase, text) in cases {
            assert_eq!(words(&engine), (phase, text.to_owned()));
        }
    }

    #[test]
    fn the_public_reason_names_the_kind_of_error_and_no_address() {
        let never = polled(EngineState::Starting, |source| source.last_failure = failure(ErrorKind::Connect, false));
        let expected = "the source has never answered: no connection (connect); see the log";
        assert_eq!(without_addresses(&never).as_deref(), Some(expected));
        let later = polled(EngineState::Unreachable, |source| {
            source.ready = true;
            source.last_failure = failure(ErrorKind::Timeout, false);
        });
        let expected = "the last poll failed: no answer in time (timeout); see the log";
        assert_eq!(without_addresses(&later).as_deref(), Some(expected));
        let answers = polled(EngineState::Idle, |source| source.ready = true);
        assert_eq!(without_addresses(&answers), None);
        assert_eq!(without_addresses(&Engine::starting()).as_deref(), Some("not polled yet"));
    }

    fn totals(ready: Option<bool>, workers: [Option<u64>; 2], minimal: [Option<u64>; 2]) -> OrchestratorTotals {
        let counts = |[context, generation]: [Option<u64>; 2]| WorkerCounts { context, generation };
        let mut fold = OrchestratorFold::default();
        let (workers, minimal_workers) = (counts(workers), counts(minimal));
        fold.absorb(&OrchestratorReading { ready, workers, minimal_workers, ..OrchestratorReading::default() });
        fold.totals
    }

    #[test]
    fn the_cause_names_a_side_with_too_few_workers() {
        let minimal = [Some(1), Some(2)];
        let served = totals(Some(true), [Some(2), Some(2)], minimal);
        assert_eq!(of_orchestrator(&served, true), "requests are being served; workers: 2 context, 2 generation");
        let missing = totals(Some(false), [Some(2), Some(0)], minimal);
        assert_eq!(
            of_orchestrator(&missing, true),
            "the orchestrator is not ready; workers: 2 context, 0 of 2 generation"
        );
        assert_eq!(of_orchestrator(&totals(None, [None; 2], [None; 2]), false), "no requests");
    }

    #[test]
    fn the_present_state_of_a_stale_orchestrator_is_absent() {
        let told = totals(Some(true), [Some(2), None], [None, Some(1)]);
        let json = |stale| serde_json::to_value(OrchestratorJson::of(&told, stale, None)).unwrap();
        assert_eq!(
            (json(false)["ready"].as_bool(), json(false)["sides"]["context"]["readyWorkers"].as_u64()),
            (Some(true), Some(2))
        );
        assert_eq!(json(false)["sides"]["generation"]["minimalWorkers"], 1);
        assert_eq!((json(true)["ready"].is_null(), json(true)["sides"].as_object().unwrap().len()), (true, 0));
    }
}
