//! The passes of the PyTorch loop: when each began and how long it took. As upstream's `_profiler`: a pass includes the
//! wait for work at its begin, and under the overlap scheduler the wait for the tokens of the batch before.

use crate::cost::Work;
use crate::engine::Engine;
use crate::intake::Intake;

/// Share of the host's work that is done before the launch of a batch. The rest follows when the tokens of the batch
/// before are handled.
pub(crate) const BUILD: f64 = 0.75;

/// Least seconds of a pass without work. Such a pass is repeated until something can be scheduled.
const SPIN: f64 = 0.001;

/// What the loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It takes new requests and schedules.
    Fetch,
    /// It handles the tokens of the oldest launched batch.
    Handle,
    /// It ends the pass.
    Finish,
}

#[derive(Debug)]
pub(crate) struct Passes {
    pub(crate) phase: Phase,
    /// When the loop does it. Absent if it waits for work.
    pub(crate) due: Option<f64>,
    /// When the running pass began, before its wait for work.
    pub(crate) begin: f64,
    /// Seconds of the last complete pass, and of the one before.
    pub(crate) last: f64,
    pub(crate) before_last: f64,
    /// Seconds of the running pass after the tokens are handled.
    pub(crate) tail_seconds: f64,
    /// When the last batch was handled.
    pub(crate) handled_at: f64,
    /// New requests of passes without a batch. The next batch reports them.
    pub(crate) intake: Intake,
    pub(crate) slot: usize,
}

impl Passes {
    pub(crate) fn new(begin: f64) -> Self {
        let (due, intake) = (None, Intake::default());
        let (last, before_last, tail_seconds, handled_at) = (0.0, 0.0, 0.0, begin);
        Self { phase: Phase::Fetch, due, begin, last, before_last, tail_seconds, handled_at, intake, slot: 0 }
    }

    pub(crate) fn wait(&mut self, phase: Phase, due: Option<f64>) {
        (self.phase, self.due) = (phase, due);
    }
}

impl Engine {
    /// Whether the loop launches a batch before it handles the batch before.
    pub(crate) fn overlaps(&self) -> bool {
        self.config.costs.overlap && !self.config.release.is_cpp()
    }

    /// Seconds of a pass that can schedule nothing.
    pub(crate) fn spin_seconds(&self) -> f64 {
        self.config.costs.host_seconds(&Work::default()).max(SPIN)
    }

    /// Numbers the passes that found nothing to schedule since the last step. If no request is active, the running pass
    /// waits for one and has its number already.
    pub(crate) fn spin(&mut self, now: f64) {
        let seconds = now - self.passes.begin;
        if self.config.release.is_cpp() || seconds <= 0.0 || self.ranks.iter().all(|rank| rank.active.is_empty()) {
            return;
        }
        let passes = (seconds / self.spin_seconds()).round().max(1.0);
        if passes > 1.0 {
            self.iter += passes as u64 - 1;
            self.passes.last = seconds / passes;
            self.passes.begin = now - self.passes.last;
        }
        self.end_pass(now);
    }

    /// Ends the running pass.
    pub(crate) fn end_pass(&mut self, now: f64) {
        let passes = &mut self.passes;
        (passes.before_last, passes.last, passes.begin) = (passes.last, now - passes.begin, now);
        self.iter += 1;
    }

    /// After the tokens of a batch are handled: begins the work that the pass still has. If it has none, ends the pass and returns false.
    pub(crate) fn begin_tail(&mut self, now: f64) -> bool {
        let seconds = std::mem::take(&mut self.passes.tail_seconds);
        if self.passes.phase == Phase::Handle && seconds > 0.0 {
            self.passes.wait(Phase::Finish, Some(now + seconds));
            return true;
        }
        if self.passes.phase != Phase::Fetch && !self.config.release.is_cpp() {
            self.end_pass(now);
        }
        false
    }
}
