//! The passes of the PyTorch loop: when each began and how long it took. As upstream's `_profiler`: a pass includes the
//! wait for work at its begin, and under the overlap scheduler the wait for the tokens of the batch before.

use crate::scheduler::Batch;

/// What the loop does next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It takes new requests and schedules.
    #[default]
    Fetch,
    /// It handles the tokens of the oldest launched batch.
    Handle,
    /// It ends the pass.
    Finish,
}

#[derive(Debug, Default)]
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
        Self { begin, handled_at: begin, ..Self::default() }
    }

    pub(crate) fn wait(&mut self, phase: Phase, due: Option<f64>) {
        (self.phase, self.due) = (phase, due);
    }
}

/// Requests that became active in one pass.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intake {
    /// Their number on each rank.
    pub(crate) new: Vec<u32>,
    pub(crate) queue_seconds: f64,
}

impl Intake {
    pub(crate) fn add(&mut self, more: &Self) {
        self.new.resize(more.new.len(), 0);
        for (new, more) in self.new.iter_mut().zip(&more.new) {
            *new += more;
        }
        self.queue_seconds += more.queue_seconds;
    }

    /// Sets the numbers of requests to 0, but keeps their seconds, which upstream sums since the start. Returns how many they were.
    pub(crate) fn forget_new(&mut self) -> u64 {
        self.new.iter_mut().map(|new| u64::from(std::mem::take(new))).sum()
    }
}

/// A batch whose tokens are not handled yet.
#[derive(Debug, Default)]
pub(crate) struct Launched {
    /// The pass that formed it: its number, its begin, and when it took new requests after its wait for work.
    pub(crate) pass: u64,
    pub(crate) pass_begin: f64,
    pub(crate) at: f64,
    /// When its time begins: when it was formed, or when the GPU ended the batch before, if that is later.
    pub(crate) since: f64,
    /// When the GPU begins and ends it.
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) gpu: f64,
    /// Seconds added by faults.
    pub(crate) delay: f64,
    pub(crate) batches: Vec<Batch>,
    /// Active requests of each rank when the pass had taken new requests.
    pub(crate) active: Vec<u32>,
    pub(crate) intake: Intake,
    pub(crate) micro_batch: u32,
    /// The slot of this batch in the shares of its requests.
    pub(crate) slot: usize,
}
