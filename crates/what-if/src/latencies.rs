//! The latencies of requests, measured or simulated, and how many of the requests meet the objectives.

use crate::answer::{Met, Range};
use crate::measured_engine::Objectives;

/// The latencies of one request in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latencies {
    pub(crate) ttft: f64,
    /// Absent if the answer has one token.
    tpot: Option<f64>,
    e2e: f64,
}

impl Latencies {
    /// `first_token` and `ended`: seconds since the arrival.
    pub(crate) fn of(first_token: f64, ended: f64, output: u32) -> Self {
        let tpot = (output > 1).then(|| (ended - first_token) / f64::from(output - 1));
        Self { ttft: first_token, tpot, e2e: ended }
    }

    /// Whether the request meets each objective, and all of them.
    fn met(&self, limits: &Objectives) -> [bool; 4] {
        let within = |time: Option<f64>, limit: Option<f64>| time.zip(limit).is_none_or(|(time, limit)| time <= limit);
        let (ttft, e2e) = (within(Some(self.ttft), limits.ttft), within(Some(self.e2e), limits.e2e));
        let tpot = within(self.tpot, limits.tpot);
        [ttft, tpot, e2e, ttft && tpot && e2e]
    }
}

/// The latencies of several requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Summary {
    /// Medians and 95th percentiles.
    pub(crate) ttft: [f64; 2],
    pub(crate) tpot: [f64; 2],
    /// Shares of the requests that meet the objectives of TTFT, TPOT and E2E, and all of these.
    pub(crate) met: [f64; 4],
}

impl Summary {
    pub(crate) fn of(requests: &[Latencies], limits: &Objectives) -> Self {
        let met: Vec<[bool; 4]> = requests.iter().map(|request| request.met(limits)).collect();
        let share = |index: usize| met.iter().filter(|met| met[index]).count() as f64 / met.len() as f64;
        Self {
            ttft: percentiles(requests.iter().map(|request| request.ttft).collect()),
            tpot: percentiles(requests.iter().filter_map(|request| request.tpot).collect()),
            met: [0, 1, 2, 3].map(share),
        }
    }
}

impl Met {
    /// `share`: of the requests that met an objective, by its index in [`Summary::met`].
    pub(crate) fn of(limits: &Objectives, share: impl Fn(usize) -> Range) -> Option<Self> {
        let [ttft, tpot, e2e] = [limits.ttft, limits.tpot, limits.e2e].map(|limit| limit.is_some());
        let shown = |is_set: bool, index: usize| is_set.then(|| share(index));
        let any = ttft || tpot || e2e;
        any.then(|| Self { ttft: shown(ttft, 0), tpot: shown(tpot, 1), e2e: shown(e2e, 2), all: shown(any, 3) })
    }
}

/// The median and the 95th percentile.
pub(crate) fn percentiles(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values.get((values.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    [at(0.5), at(0.95)]
}
