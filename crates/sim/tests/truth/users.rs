//! What users notice of a simulated engine. The scenarios state only their cause, so tests judge a scenario, and the remedies for it, by
//! this. The tests of the verdict use it, too.

use trtllm_sim::record::End;
use trtllm_sim::scenario::Scenario;
use trtllm_sim::truth::RequestTruth;
use trtllm_sim::{Config, Engine};

/// What users notice in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    TimeToFirstToken,
    TimePerToken,
    /// The longest wait between two tokens.
    Gap,
    Throughput,
    Errors,
    /// Records that reach the reader. Users notice nothing, but the operator sees wrong numbers.
    Records,
}

/// What users notice in each situation. The name of a scenario is that of its situation, with a suffix for some backends.
const NOTICED: &[(Measure, &str)] = &[
    (
        Measure::TimeToFirstToken,
        "batch-limit batch-limit-closed-loop batch-limit-bursts token-limit token-limit-long-prompts static-batching \
         kv-capacity kv-capacity-prompts kv-reservation kv-reservation-by-clients kv-thrash kv-thrash-conversations \
         kv-thrash-host context-work context-work-without-reuse ranks transfer transfer-latency \
         frontend frontend-streaming adapters load load-ramp spikes-rare tuner wedge hang",
    ),
    (Measure::Throughput, "static-batching-offline"),
    (Measure::Gap, "kv-pauses context-blocking context-blocking-unchunked spikes"),
    (
        Measure::TimePerToken,
        "generation-work generation-work-long-context speculation speculation-big-batch host host-no-overlap \
         host-per-request ranks-pipeline clocks-power clocks-thermal gpu-slow slowdown",
    ),
    (Measure::Errors, "memory errors errors-timeouts errors-too-long restarts loading"),
    (Measure::Records, "statistics-lost statistics-second-reader statistics-off"),
];

/// Whether this scenario is one of these situations.
pub(crate) fn is_one_of(situations: &str, scenario: &Scenario) -> bool {
    let name = scenario.name.as_str();
    let situation = ["-v1", "-cpp", "-cpp-0.16"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    situations.split(' ').any(|one| one == situation)
}

impl Measure {
    /// Panics for a scenario that is missing in the table, such as a healthy engine.
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let row = NOTICED.iter().find(|(_, situations)| is_one_of(situations, scenario));
        row.unwrap_or_else(|| panic!("what do users notice in {}?", scenario.name)).0
    }

    /// The measured value as a cost: lower is better.
    fn cost(self, felt: &Felt) -> f64 {
        match self {
            Self::TimeToFirstToken => felt.ttft_p95,
            Self::TimePerToken => felt.tpot_p95,
            Self::Gap => felt.gap_p95,
            Self::Throughput => 1.0 / felt.tokens_per_second.max(1e-9),
            Self::Errors => felt.error_share,
            Self::Records => 1.0 - felt.records_share,
        }
    }

    /// The median cost of three runs of this engine.
    pub(crate) fn median_cost(self, config: &Config, seeds: [u64; 3]) -> f64 {
        let mut costs = seeds.map(|seed| self.cost(&Felt::of(config, seed)));
        costs.sort_by(f64::total_cmp);
        costs[1]
    }
}

/// What users experience.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Felt {
    /// 95th percentiles in seconds.
    pub(crate) ttft_p95: f64,
    pub(crate) tpot_p95: f64,
    /// Longest time between two tokens of an answer.
    pub(crate) gap_p95: f64,
    /// Tokens per second of answered requests.
    pub(crate) tokens_per_second: f64,
    /// Share of requests that failed, timed out, or wait for more than a minute. Cancellations do not count.
    pub(crate) error_share: f64,
    /// Share of records that reached the reader.
    pub(crate) records_share: f64,
}

/// The seconds of virtual time in which users are asked.
const FROM: f64 = 20.0;
const UNTIL: f64 = 140.0;

impl Felt {
    /// What users of this engine experience.
    pub(crate) fn of(config: &Config, seed: u64) -> Self {
        let mut engine = Engine::new(config.clone(), seed);
        engine.run(UNTIL, |_| ());
        let truth = engine.truth();
        let ended: Vec<_> = truth.requests.iter().filter(|request| request.arrival >= FROM).collect();
        let answered = |request: &&RequestTruth| matches!(request.end, End::Stop | End::Length);
        let mut ttft: Vec<f64> =
            ended.iter().filter_map(|request| request.first_seen.map(|seen| seen - request.arrival)).collect();
        // The time to the first token of a waiting request is at least its waiting time so far.
        let open = engine.arrivals_without_token().filter(|arrival| *arrival >= FROM).map(|arrival| UNTIL - arrival);
        let open: Vec<f64> = open.collect();
        ttft.extend(&open);
        let mut tpot: Vec<f64> = ended
            .iter()
            .filter(|request| request.generated > 1)
            .filter_map(|request| Some((request.last_seen - request.first_seen?) / f64::from(request.generated - 1)))
            .collect();
        let in_time = |request: &&RequestTruth| request.last_seen >= FROM && request.last_seen < UNTIL;
        let tokens: u64 = truth.requests.iter().filter(in_time).filter(answered).map(|r| u64::from(r.generated)).sum();
        let failed = ended.iter().filter(|r| matches!(r.end, End::Error | End::TimedOut)).count();
        // Users give up after a minute.
        let abandoned = open.iter().filter(|waited| **waited > 60.0).count();
        Self {
            ttft_p95: percentile(&mut ttft, 0.95),
            gap_p95: percentile(&mut ended.iter().map(|request| request.longest_gap).collect::<Vec<_>>(), 0.95),
            tpot_p95: percentile(&mut tpot, 0.95),
            tokens_per_second: tokens as f64 / (UNTIL - FROM),
            error_share: (failed + abandoned) as f64 / (ended.len() + abandoned).max(1) as f64,
            records_share: truth.records as f64 / (truth.records + truth.records_lost).max(1) as f64,
        }
    }
}

/// The percentile of the values, 0 if there are none.
fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}
