//! What is concluded from the last five minutes of an engine, and of the host.

use std::collections::VecDeque;

use trtllm_analysis::window::Window;
use trtllm_records::BenchReport;
use trtllm_verdict::findings::Finding;
use trtllm_verdict::findings::exporter::ExporterMark;
use trtllm_verdict::findings::orchestrator::OrchestratorMark;
use trtllm_verdict::gpu_window::GpuWindow;
use trtllm_verdict::judge::DebouncedVerdict;
use trtllm_what_if::Headroom;
use trtllm_what_if::output::OutputRatios;

/// Seconds over which arrivals of requests are counted.
pub(super) const RECENT: f64 = 60.0;

/// The last five minutes of an engine, and what is concluded from them.
#[derive(Debug, Clone, Default)]
pub struct EngineJudgement {
    pub window: Window,
    pub verdict: DebouncedVerdict,
    /// Duration of the iterations of the last minute, divided by the duration of equal work before.
    pub slowdown: Option<f64>,
    /// Requests per second that the engine could serve, according to the costs of its iterations.
    pub(super) capacity: Option<f64>,
    pub findings: Vec<Finding>,
    /// Counts of an orchestrator in the last five minutes, taken every five seconds, oldest first.
    pub(super) orchestrator: VecDeque<OrchestratorMark>,
    /// When the source last answered, if it does not now: in microseconds since 1970, and on the clock of the judgements.
    pub(super) silent_since: Option<(i64, f64)>,
}

/// The windows of all GPUs, and the counts and findings of the exporter itself.
#[derive(Debug, Default)]
pub(super) struct HostJudgement {
    pub(super) gpus: Vec<GpuWindow>,
    pub(super) exporter: VecDeque<ExporterMark>,
    pub(super) findings: Vec<Finding>,
}

impl EngineJudgement {
    /// Absent while there is too little data.
    pub fn headroom(&self) -> Option<Headroom> {
        Headroom::of(&self.window.span(RECENT)?, self.window.waiting(RECENT), self.capacity)
    }

    /// The output of the last five minutes relative to the benchmark.
    pub fn output_ratios(&self, bench: &BenchReport) -> OutputRatios {
        OutputRatios::of(&self.window, bench).unwrap_or_default()
    }

    /// What an orchestrator counted in the last `seconds`.
    pub fn orchestrator_span(&self, seconds: f64) -> Option<OrchestratorMark> {
        OrchestratorMark::span(&self.orchestrator, seconds)
    }
}
