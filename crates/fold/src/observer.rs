//! What a fold tells while it absorbs messages. The fold does not know who listens, and nothing comes back.

use std::time::{Duration, Instant};

use trtllm_records::RequestStats;

use super::clock::ClockSpan;
use super::finished_request::FinishedRequest;
use super::latest::Latest;
use super::lifecycle::Pause;
use super::ranks::Iteration;
use super::request_times::Times;
use super::served::Served;
use super::server_metrics::Increase;

/// Listens to a fold. `()` ignores everything.
#[expect(
    unused_variables,
    reason = "the methods do nothing by default, and the names of their arguments are documentation"
)]
pub trait Observer {
    /// The records of all ranks of an iteration are read, and `latest` has its values. Not told of a late iteration, whose neighbours are unknown.
    /// `span`: its time. Absent if it is unknown, or if only a sample of the iterations is reported.
    fn iteration(&mut self, iteration: &Iteration, latest: &Latest, span: Option<ClockSpan>) {}

    /// Nothing runs from this moment on.
    fn idle(&mut self, span: Option<ClockSpan>) {}

    /// The clock of the records was set: what follows cannot be compared with the times before.
    fn clock_set(&mut self) {}

    /// The records that follow do not continue those before: the engine has restarted, or it is unknown what happened meanwhile.
    fn begin_epoch(&mut self) {}

    /// The requests that follow are not those before: the engine has restarted, or nobody read it for a while.
    fn restart(&mut self) {}

    /// Rows tell which requests are paused. These pauses are over.
    fn pauses(&mut self, over: &[Pause]) {}

    /// A row reports a request complete. Its prefill position is the length of the prompt. `times`: derived from the changes of its stage.
    fn complete_row(&mut self, row: &RequestStats, times: &Times) {}

    /// The outcome of a request comes from its rows, as certain as that of an entry. `is_judged`: objectives judge it.
    fn row_counted(&mut self, request: &FinishedRequest, is_judged: bool) {}

    /// An entry of RequestPerfMetrics reports a finished request.
    fn entry(&mut self, entry: &EntryOfRequest<'_>) {}

    /// Objectives judge a request by these times.
    fn served(&mut self, served: &Served, scope: Scope) {}

    /// Objectives judge the requests that were added to the server's own histograms.
    fn server_requests(&mut self, more: &Increase, scope: Scope) {}

    /// A poll has ended. `completed`: the total of completed requests. A request is judged within `patience` of its end, or never.
    fn settled(&mut self, completed: u64, patience: Duration, now: Instant) {}
}

impl Observer for () {}

/// Which objectives a source judges. The time per output token of a request can come from another source than its other times.
/// Then that source judges the time per output token. It also judges all objectives together, because it has the other times as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    All,
    PerToken,
    WithoutPerToken,
}

/// A finished request as its entry reports it.
#[derive(Debug, Clone, Copy)]
pub struct EntryOfRequest<'a> {
    pub request: &'a FinishedRequest,
    /// Whether the engine told a time of the request.
    pub has_times: bool,
    pub tokens_per_block: Option<i64>,
    /// The last iteration in the entry minus the iteration of the record of its last batch. An entry has the pass that handled
    /// the last token. Under the overlap scheduler this is the next pass, and a record has the pass that built the batch.
    pub handling_lag: u64,
    pub now: Instant,
}
