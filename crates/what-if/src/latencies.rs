//! The latencies of requests, measured or simulated, and how many of the requests meet the objectives.

use crate::answer::{Met, Range};
use crate::measured_engine::{Objectives, Request};

/// TTFT, TPOT and E2E of a request in seconds. An answer of one token has no TPOT.
fn latencies(Request { first_token, ended, output, .. }: &Request) -> [Option<f64>; 3] {
    let tpot = (*output > 1).then(|| (ended - first_token) / f64::from(output - 1));
    [Some(*first_token), tpot, Some(*ended)]
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
    pub(crate) fn of(requests: &[Request], objectives: &Objectives) -> Self {
        let limits = objectives.limits();
        let requests: Vec<_> = requests.iter().map(latencies).collect();
        let meets = |request: &[Option<f64>; 3], index: usize| {
            request[index].zip(limits[index]).is_none_or(|(time, limit)| time <= limit)
        };
        let share = |of: &[usize]| {
            let met = requests.iter().filter(|request| of.iter().all(|index| meets(request, *index)));
            met.count() as f64 / requests.len() as f64
        };
        let times = |index: usize| percentiles(requests.iter().filter_map(|request| request[index]).collect());
        Self { ttft: times(0), tpot: times(1), met: [share(&[0]), share(&[1]), share(&[2]), share(&[0, 1, 2])] }
    }
}

impl Met {
    /// `share`: of the requests that met an objective, by its index in [`Summary::met`].
    pub(crate) fn of(objectives: &Objectives, share: impl Fn(usize) -> Range) -> Option<Self> {
        let shown = |limit: Option<f64>, index: usize| limit.map(|_| share(index));
        let [ttft, tpot, e2e] = objectives.limits();
        let all = shown(ttft.or(tpot).or(e2e), 3)?;
        Some(Self { ttft: shown(ttft, 0), tpot: shown(tpot, 1), e2e: shown(e2e, 2), all: Some(all) })
    }
}

/// The median and the 95th percentile.
pub(crate) fn percentiles(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values.get((values.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    [at(0.5), at(0.95)]
}
