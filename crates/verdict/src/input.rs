//! The data from which an engine is judged: its window, and the numbers that several rules need.

use trtllm_analysis::cost_model::Prices;
use trtllm_analysis::numbers::{mean, share};
use trtllm_analysis::window::{JudgedRequests, Mark, Slowdown, Span, Window};
use trtllm_fold::EngineState;
use trtllm_records::{Objectives, PodTrouble};

use super::blind::Blind;
use super::cause::Cause;
use super::gpu_window::{GpuSpan, GpuWindow};
use super::verdict::{Found, Severity, percent, time};

/// Length in seconds of the part of the window that is judged, and of the whole window.
const JUDGED: f64 = 60.0;
const KEPT: f64 = 300.0;
/// Time slots of the window in which the engine must have worked before its work is judged.
const ENOUGH_SLOTS: usize = 3;
/// Requests count as waiting if their mean time in the queue is at least this, in seconds.
const WAITS: f64 = 0.1;
/// Without objectives, users are hurt if 5 % of the requests take at least this many seconds to the first token, or for each
/// token.
pub const HURT_FIRST_TOKEN: f64 = 2.0;
pub const HURT_PER_TOKEN: f64 = 0.1;
/// With objectives, users are hurt if at least this share of the requests misses them.
pub const HURT_MISSED: f64 = 0.05;
/// Finish reasons are missing if at least SOME_WITHOUT requests of a minute, and at least the share WITHOUT_REASON, have none. The server's
/// metrics, which have the reasons, are read later than the records, so a few are always missing.
const SOME_WITHOUT: f64 = 5.0;
pub(crate) const WITHOUT_REASON: f64 = 0.05;

/// Whether so many requests missed an objective that users are hurt.
pub(crate) fn hurts(judged: &JudgedRequests) -> bool {
    judged.missed_share().is_some_and(|missed| missed >= HURT_MISSED)
}

/// Why an engine cannot be read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Silence {
    /// Seconds since its last answer, or since the exporter began to ask.
    pub seconds: f64,
    pub why: String,
    /// The server is still loading the model.
    pub is_loading: bool,
    /// The source cannot be opened.
    pub is_closed: bool,
    /// The server answers 503, and has served before.
    pub has_lost_engine: bool,
    /// What keeps the engine's pod from serving, as Kubernetes says.
    pub pod: Option<PodTrouble>,
    /// The server answers with an error status.
    pub has_status: bool,
    /// The last poll timed out.
    pub is_slow: bool,
    /// The engine's publisher has disconnected.
    pub publisher_left: bool,
    /// Another kind of server answers at the address.
    pub is_no_engine: bool,
    /// The longest time that this model took to load so far, in seconds.
    pub longest_load: Option<f64>,
}

/// Facts about the source of the statistics that the statistics themselves do not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notices {
    /// The source never has records of iterations.
    pub only_requests: bool,
    /// The source is the iteration log of the engine.
    pub only_log: bool,
    /// The engine stamps first tokens too early.
    pub first_token_is_early: bool,
    /// Requests end while no iteration records arrive.
    pub records_missing: bool,
    pub several_frontends: bool,
    /// The records come from several engines, so none of them is counted.
    pub several_engines: bool,
    /// The engine is stalled because it cannot accept another request.
    pub is_wedged: bool,
}

/// What the caller knows about an engine, besides its window.
#[derive(Debug, Default)]
pub struct EngineFacts {
    pub state: EngineState,
    pub silence: Option<Silence>,
    pub notices: Notices,
    pub is_pytorch: bool,
    /// The scheduler reserves no blocks for answers. KV cache manager V2 forces this, whatever is configured.
    pub never_reserves: bool,
    /// The engine runs in this process, so the exporter sees how each request ends, also one that the engine refuses.
    pub is_hosted: bool,
    /// GPUs of the engine on all nodes, if that is known.
    pub gpu_count: Option<usize>,
    pub objectives: Objectives,
    /// The cause of the previous verdict.
    pub before: Option<Cause>,
}

/// The data of one engine: `now` is the last minute, `kept` the whole window.
#[derive(Debug)]
pub struct VerdictInput {
    pub facts: EngineFacts,
    pub now: Span,
    pub kept: Span,
    /// The engine has worked long enough to judge its work.
    pub has_work: bool,
    /// Records have arrived in the last time slot.
    pub has_records: bool,
    pub costs: Option<Prices>,
    pub slowdown: Option<Slowdown>,
    pub gpus: Vec<GpuSpan>,
    /// The highest power of each GPU in the whole window, while its utilization was about that of the last minute or higher.
    pub gpu_peak_watts: Vec<f64>,
    /// Host memory at each mark, oldest first.
    pub host_bytes: Vec<f64>,
    /// Number of waiting requests now − the number a minute ago.
    pub backlog_growth: f64,
    /// The mean share of a prompt that was found in the KV cache, in the half minute of the window with the highest share.
    pub best_hits: Option<f64>,
}

impl VerdictInput {
    /// `gpus` are the windows of the engine's GPUs, if these are known. Absent while the engine's window is too short.
    pub fn of(facts: EngineFacts, window: &Window, gpus: &[GpuWindow]) -> Option<Self> {
        let now = window.span(JUDGED)?;
        let kept = window.span(KEPT)?;
        let [waited, waiting] = window.waiting(JUDGED).map(|requests| requests.unwrap_or(0.0));
        let gpus: Vec<_> = gpus.iter().filter_map(|gpu| Some((gpu, gpu.span(now.seconds + 1.0)?))).collect();
        Some(Self {
            facts,
            has_work: slots(window, |mark| mark.sums.iterations).filter(|more| *more > 0.0).count() >= ENOUGH_SLOTS,
            kept,
            has_records: slots(window, |mark| mark.counts.iterations).last().is_some_and(|more| more > 0.0),
            costs: window.last().and_then(|mark| mark.costs),
            slowdown: window.slowdown(),
            gpu_peak_watts: gpus.iter().map(|(gpu, span)| peak_watts(gpu, span)).collect(),
            gpus: gpus.into_iter().map(|(_, span)| span).collect(),
            host_bytes: window.marks().filter_map(|mark| mark.host_bytes).collect(),
            backlog_growth: waiting - waited,
            best_hits: best_hits(window),
            now,
        })
    }

    /// The value for the backend of this engine: PyTorch or TensorRT.
    pub fn by_backend<T>(&self, pytorch: T, tensorrt: T) -> T {
        if self.facts.is_pytorch { pytorch } else { tensorrt }
    }

    pub(crate) fn backend(&self) -> &'static str {
        self.by_backend("PyTorch", "TensorRT")
    }

    /// `part` ÷ the iterations of the last minute.
    pub fn of_iterations(&self, part: f64) -> f64 {
        share(part, self.now.sums.iterations)
    }

    /// `part` ÷ the iterations in which requests waited.
    pub fn of_waits(&self, part: f64) -> f64 {
        share(part, self.now.sums.waits)
    }

    /// Share of the time in which iterations ran. Iterations without a record are not included.
    pub fn busy(&self) -> f64 {
        share(self.now.sums.seconds * self.now.sampling, self.now.seconds).min(1.0)
    }

    /// Seconds of computing that the requests of the last minute need per second: for their context, and for their decoding.
    /// The fixed time of each iteration is not included. If both together reach 1, no batch is large enough for the requests.
    pub fn demand(&self) -> Option<(f64, f64)> {
        let costs = self.costs?;
        let (sums, scale) = (&self.now.sums, self.now.sampling / self.now.seconds);
        let context = costs.context_token * sums.work.context_tokens * scale;
        let tokens = costs.generation_token * sums.work.generation_tokens * scale;
        Some((context, tokens + costs.kv_token * sums.work.kv_tokens * scale))
    }

    /// The demand of all requests that arrive, including those that are not served.
    pub fn offered(&self) -> Option<f64> {
        let (context, generation) = self.demand()?;
        let served = self.now.counts.started.max(self.now.counts.completed);
        let growth = if served > 0.0 { 1.0 + self.backlog_growth.max(0.0) / served } else { 1.0 };
        Some((context + generation) * growth)
    }

    /// Share of the demand that is for context.
    pub fn context_share(&self) -> Option<f64> {
        self.demand().map(|(context, generation)| share(context, context + generation))
    }

    /// Mean seconds in the queue of the engine. Without times of requests, it is computed from the number of waiting requests.
    pub fn queue_time(&self) -> Option<f64> {
        let by_length = || {
            let rate = self.now.rate(self.now.counts.started.max(self.now.counts.completed));
            let mean = self.of_iterations(self.now.sums.backlog);
            (rate > 0.0).then(|| mean / rate)
        };
        self.now.distributions.queue.mean().or_else(by_length)
    }

    pub fn waits(&self) -> bool {
        self.queue_time().is_some_and(|time| time >= WAITS) && self.of_iterations(self.now.sums.waits) >= 0.05
    }

    /// Mean utilization of the GPUs.
    pub fn utilization(&self) -> Option<f64> {
        let known: Vec<f64> = self.gpus.iter().filter_map(|gpu| gpu.utilization).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// Share of the time of iterations that their forward passes took, by the engine's own times.
    pub fn forward_share(&self) -> Option<f64> {
        let sums = &self.now.sums;
        mean(sums.device_seconds, sums.device_known_seconds)
    }

    /// Share of the time of iterations in which no kernel ran: from the engine's own times of its forward passes, or from the utilization
    /// of its GPUs if the engine is busy, whichever is larger. A forward pass in which the GPU waits for the host counts as work in the
    /// engine's own times. `prevDeviceStepTimeMS` does not show this, because it spans the whole pass.
    pub fn gpu_idle(&self) -> Option<f64> {
        let by_engine = self.forward_share().map(|share| (1.0 - share).max(0.0));
        let busy = self.busy();
        let by_gpus = self.utilization().filter(|_| busy >= 0.5).map(|used| (1.0 - used / busy).max(0.0));
        by_engine.into_iter().chain(by_gpus).reduce(f64::max)
    }

    /// All requests that ended, and those that failed or timed out. A request that its client cancels has not failed.
    pub fn failures(&self) -> (f64, f64) {
        let (counts, failed) = (&self.now.counts, self.now.failed());
        (counts.ended_well + counts.cancelled + failed, failed)
    }

    /// Completed requests of the last minute that ended without a finish reason, and their share. The records count requests that fail
    /// or are cancelled as completed. trtllm-serve's page, its lines and most publishers tell only of requests with an answer.
    pub fn without_reason(&self) -> (f64, f64) {
        let missing = (self.now.counts.completed - self.failures().0).max(0.0);
        (missing, share(missing, self.now.counts.completed))
    }

    /// What cannot be seen of an engine in the last minute.
    pub fn blind_spots(&self) -> Vec<Blind> {
        let (facts, sums, times) = (&self.facts, &self.now.sums, &self.now.distributions);
        let is_blind = |blind: &Blind| match blind {
            Blind::Gpu => self.gpus.is_empty(),
            Blind::Failures => !self.sees_failures(),
            Blind::RequestTimes => self.kept.distributions.ttft.count <= 0.0,
            Blind::BatchLimit => sums.batch_limit_known < sums.iterations,
            Blind::TokenLimit => sums.token_limit_known < sums.iterations,
            // With several GPUs, their power shows the stage that works most.
            Blind::Ranks => sums.rank_iterations <= 0.0 && self.gpus.is_empty() && facts.gpu_count != Some(1),
            Blind::Transfer => self.now.is_of_a_generation_server() && times.transfer.count <= 0.0,
            Blind::Host => sums.device_known_seconds <= 0.0 && self.utilization().is_none(),
        };
        Blind::ALL.into_iter().filter(is_blind).collect()
    }

    /// Whether failed requests are seen: no server and no publisher tells of a request that is refused before it becomes active.
    pub fn sees_failures(&self) -> bool {
        self.facts.is_hosted && !self.lacks_reasons()
    }

    /// Whether so many requests have no finish reason that it is not only because the server's metrics are read later than the records.
    pub fn lacks_reasons(&self) -> bool {
        let (missing, share) = self.without_reason();
        missing >= SOME_WITHOUT && share >= WITHOUT_REASON
    }

    /// Share of the requests that missed an objective.
    pub fn missed(&self) -> Option<f64> {
        self.now.counts.all.missed_share().filter(|_| self.facts.objectives.any())
    }

    /// Begins the result of a rule for a cause that makes the engine slower.
    pub(crate) fn found(&self, says: impl Into<String>) -> Found {
        Found::new(self.severity(), says)
    }

    /// The severity of a cause that makes the engine slower.
    pub fn severity(&self) -> Severity {
        let times = &self.now.distributions;
        let is_hurt = match self.missed() {
            Some(missed) => missed >= HURT_MISSED,
            None => {
                let first = [&times.ttft, &times.server_ttft];
                // Without times of requests, the first token comes at least as late as the request leaves the queue.
                let waits = times.ttft.count <= 0.0 && self.queue_time().is_some_and(|time| time >= HURT_FIRST_TOKEN);
                waits
                    || first.iter().any(|times| times.quantile(0.95).is_some_and(|time| time >= HURT_FIRST_TOKEN))
                    || times.tpot.quantile(0.95).is_some_and(|time| time >= HURT_PER_TOKEN)
            }
        };
        if is_hurt { Severity::Warning } else { Severity::Info }
    }

    /// What users notice: missed objectives if there are any, or else times.
    pub fn cost(&self) -> Option<String> {
        let (counts, times) = (&self.now.counts, &self.now.distributions);
        let judged = [counts.ttft, counts.tpot, counts.e2e];
        let missed = self.facts.objectives.limits().into_iter().zip(judged).filter_map(|((name, limit), judged)| {
            let missed = judged.missed_share().filter(|missed| *missed > 0.0)?;
            Some(format!("{} of requests miss {name}={}", percent(missed), time(limit?.as_secs_f64())))
        });
        let missed: Vec<String> = missed.collect();
        if !missed.is_empty() {
            return Some(missed.join(", "));
        }
        let first = if times.server_ttft.count > 0.0 { &times.server_ttft } else { &times.ttft };
        let mut says = format!("first token after {}", time(first.mean()?));
        if let Some(slow) = first.quantile(0.95) {
            says += &format!(", {} for one request in twenty", time(slow));
        }
        if let Some(token) = times.tpot.mean() {
            says += &format!("; {} for each token", time(token));
        }
        Some(says)
    }
}

fn peak_watts(gpu: &GpuWindow, now: &GpuSpan) -> f64 {
    let utilization = now.utilization.unwrap_or(0.0);
    let alike = gpu.marks().filter(|mark| mark.utilization.is_some_and(|used| used >= 0.9 * utilization));
    alike.filter_map(|mark| mark.watts).fold(0.0, f64::max)
}

/// How much a number grew in each time slot.
fn slots(window: &Window, number: fn(&Mark) -> f64) -> impl Iterator<Item = f64> {
    window.marks().zip(window.marks().skip(1)).map(move |(before, after)| number(after) - number(before))
}

fn best_hits(window: &Window) -> Option<f64> {
    let hits = slots(window, |mark| mark.distributions.hit_ratio.sum);
    let slots: Vec<(f64, f64)> = hits.zip(slots(window, |mark| mark.distributions.hit_ratio.count)).collect();
    let half_minutes =
        slots.windows(6).map(|slots| slots.iter().fold((0.0, 0.0), |sum, slot| (sum.0 + slot.0, sum.1 + slot.1)));
    half_minutes.filter(|(_, count)| *count >= 10.0).map(|(sum, count)| sum / count).reduce(f64::max)
}
