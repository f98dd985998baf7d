//! Judges whether requests met the objectives of their engine, each request as a whole. Where only histograms are
//! known, only what is certain is counted: a histogram does not show which first token and which last token belong to
//! one request.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use trtllm_records::Objectives;
use trtllm_records::perf_metrics::FinishReason;
use trtllm_records::server_metrics::RequestHistogram;

use trtllm_fold::observer::Scope;
use trtllm_fold::saturating::{add, add_known};
use trtllm_fold::served::Served;
use trtllm_fold::server_metrics::{HistogramIncrease, Increase};

/// Requests by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    pub met: u64,
    pub missed: u64,
    pub unknown: u64,
}

/// Requests by objective and outcome. Absent objectives are not configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectiveTotals {
    /// The outcomes for TTFT, TPOT and E2E.
    pub each: [Option<Outcomes>; 3],
    /// The outcomes for all objectives together.
    pub all: Outcomes,
    /// Output tokens of requests that met all objectives. Absent until the length of a request is known.
    pub goodput_tokens: Option<u64>,
    pub limits: Objectives,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Met,
    Missed,
    Unknown,
}

impl Outcome {
    /// The outcome for two objectives together. It is unknown if one of the two is, also if the other one is missed. Otherwise
    /// an objective that is never known would leave only misses in the share of missed requests.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Missed, _) | (_, Self::Missed) => Self::Missed,
            (Self::Met, Self::Met) => Self::Met,
        }
    }
}

/// The outcomes of a request for TTFT, TPOT and E2E. Absent where there is no limit.
fn judge(served: &Served, limits: &Objectives) -> [Option<Outcome>; 3] {
    // The first token is not part of the decode time, so a request with one token meets any limit.
    let (decode, parts) = match served.output_tokens {
        Some(0 | 1) => (Some(0.0), 1),
        Some(tokens) => {
            (served.decode.filter(|_| tokens > 1 + served.skipped), tokens.saturating_sub(1 + served.skipped))
        }
        None => (None, 1),
    };
    let within = |seconds, parts, limit| if served.failed { Outcome::Missed } else { within(seconds, parts, limit) };
    [
        limits.ttft.map(|limit| within(served.time_to_first_token, 1, limit)),
        limits.tpot.map(|limit| within(decode, parts, limit)),
        limits.e2e.map(|limit| within(served.e2e, 1, limit)),
    ]
}

/// Compares `seconds` with `parts` times the limit, in whole microseconds.
fn within(seconds: Option<f64>, parts: u64, limit: Duration) -> Outcome {
    let Some(seconds) = seconds else { return Outcome::Unknown };
    let limit = micros(limit.as_secs_f64()) * parts as f64;
    if micros(seconds) <= limit { Outcome::Met } else { Outcome::Missed }
}

/// Rounds to microseconds: the difference of two Unix times stored as f64 has an error of about that size.
fn micros(seconds: f64) -> f64 {
    (seconds * 1e6).round()
}

/// Observations within the limit, and those above it. `None` if the limit is inside a bucket. An estimate could be wrong for all requests
/// of that bucket, which may be most of them.
fn split_at(increase: &HistogramIncrease, limit: Duration) -> Option<(u64, u64)> {
    let limit = micros(limit.as_secs_f64());
    increase.buckets.iter().find(|(bound, _)| micros(*bound) == limit)?;
    let met = increase.buckets.iter().filter(|(bound, _)| micros(*bound) <= limit);
    let met = met.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    Some((met, increase.count().saturating_sub(met)))
}

impl Outcomes {
    fn count(self) -> u64 {
        self.met.saturating_add(self.missed).saturating_add(self.unknown)
    }

    fn add_all(&mut self, more: Self) {
        add(&mut self.met, more.met);
        add(&mut self.missed, more.missed);
        add(&mut self.unknown, more.unknown);
    }

    fn add(&mut self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Met => &mut self.met,
            Outcome::Missed => &mut self.missed,
            Outcome::Unknown => &mut self.unknown,
        };
        add(count, 1);
    }
}

impl ObjectiveTotals {
    pub fn ttft(&self) -> Option<Outcomes> {
        self.each[0]
    }

    pub fn tpot(&self) -> Option<Outcomes> {
        self.each[1]
    }

    pub fn e2e(&self) -> Option<Outcomes> {
        self.each[2]
    }

    /// The counts of `before` with new limits. Its requests keep their outcomes. `None` without limits.
    pub fn with_limits(before: Option<Self>, limits: Objectives) -> Option<Self> {
        let mut new = limits.any().then(|| Self::new(limits))?;
        let Some(before) = before else { return Some(new) };
        for (new, before) in new.each.iter_mut().zip(before.each) {
            *new = new.map(|new| before.unwrap_or(new));
        }
        Some(Self { each: new.each, limits, ..before })
    }

    /// Every configured objective starts with 0.
    pub fn new(limits: Objectives) -> Self {
        let each = limits.limits().map(|(_, limit)| limit.map(|_| Outcomes::default()));
        Self { each, limits, ..Self::default() }
    }

    /// Counts requests of which only the histograms are known. If the limit is not the bound of a bucket, they count as
    /// unknown. Histograms do not show which times belong to one request. So `all` counts only what is certain for every pairing:
    /// `all.met` has the requests that met every objective, and `all.missed` those that missed one objective while no other
    /// objective can be unknown. See [`Scope`].
    pub(crate) fn count_histograms(&mut self, more: &Increase, scope: Scope) {
        let reason = |reason: FinishReason| more.finished[reason as usize];
        // Histograms contain the times of cancelled and failed requests, but do not show which times these are.
        let cancelled = reason(FinishReason::Cancelled);
        let not_met =
            cancelled.saturating_add(reason(FinishReason::Timeout)).saturating_add(reason(FinishReason::Other));
        let histograms = [RequestHistogram::FirstToken, RequestHistogram::PerOutputToken, RequestHistogram::EndToEnd];
        let limits = self.limits.limits().into_iter().zip(histograms);
        let configured = limits.clone().filter(|((_, limit), _)| limit.is_some());
        let requests = configured.map(|(_, histogram)| more.of(histogram).count());
        let requests = requests.fold(more.of(RequestHistogram::EndToEnd).count(), u64::max);
        let mut all_met = requests;
        // The largest of `missed + unknown` of an objective, and the unknown outcomes of all objectives.
        let (mut most_not_met, mut all_unknown) = (0_u64, 0_u64);
        for (outcomes, ((_, limit), histogram)) in self.each.iter_mut().zip(limits) {
            let (Some(outcomes), Some(limit)) = (outcomes, limit) else { continue };
            let (met, missed) = split_at(more.of(histogram), limit).unwrap_or_default();
            let (met, missed) = (met.saturating_sub(not_met), missed.saturating_sub(cancelled));
            // Both are parts of one count, which is at most `requests`.
            let of_objective = Outcomes { met, missed, unknown: requests - met - missed };
            all_met = all_met.saturating_sub(requests - met);
            most_not_met = most_not_met.max(requests - met);
            all_unknown = all_unknown.saturating_add(of_objective.unknown);
            if scope == Scope::All || histogram == RequestHistogram::PerOutputToken {
                outcomes.add_all(of_objective);
            }
        }
        // Each unknown outcome could belong to a request that missed another objective, so all of them are subtracted:
        // a lower bound. All of `most_not_met` was subtracted from `all_met`, so together they are at most `requests`.
        let all_missed = most_not_met.saturating_sub(all_unknown);
        let all = Outcomes { met: all_met, missed: all_missed, unknown: requests - all_met - all_missed };
        if scope == Scope::All || self.limits.tpot.is_some() {
            self.all.add_all(all);
        }
    }

    /// Whether a request missed the objectives of TTFT, TPOT and E2E. False for an objective that is not configured.
    pub(crate) fn missed(&self, served: &Served) -> [bool; 3] {
        judge(served, &self.limits).map(|outcome| outcome == Some(Outcome::Missed))
    }

    /// Counts requests as unknown, so that each objective has an outcome for each of the `completed` requests.
    fn count_unjudged(&mut self, completed: u64) {
        for outcomes in self.each.iter_mut().flatten().chain([&mut self.all]) {
            let unjudged = completed.saturating_sub(outcomes.count());
            add(&mut outcomes.unknown, unjudged);
        }
    }

    /// Counts one request. `all` is unknown if any objective is, else missed if any is, else met.
    pub(crate) fn count(&mut self, served: &Served, scope: Scope) {
        let (judges_token, judges_rest) = (scope != Scope::WithoutPerToken, scope != Scope::PerToken);
        let judges = [judges_rest, judges_token, judges_rest];
        let mut all = Outcome::Met;
        for ((outcomes, outcome), judges) in self.each.iter_mut().zip(judge(served, &self.limits)).zip(judges) {
            let (Some(outcomes), Some(outcome)) = (outcomes, outcome) else { continue };
            if judges {
                outcomes.add(outcome);
            }
            all = all.and(outcome);
        }
        // All objectives together are judged with the time per output token, if that is limited.
        let judges_all = if self.limits.tpot.is_some() { judges_token } else { judges_rest };
        if judges_all {
            self.all.add(all);
        }
        if let Some(tokens) = served.output_tokens {
            let good = if all == Outcome::Met { tokens } else { 0 };
            add_known(&mut self.goodput_tokens, Some(good));
        }
    }
}

/// The completed requests that nothing has judged: those without an entry, and those whose entry was lost.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnjudgedRequests {
    /// Completed requests at each moment. Those younger than `patience` may still be judged.
    recent: VecDeque<(Instant, u64)>,
    /// Complete requests before anything judged one. They have no outcome.
    before: u64,
}

impl UnjudgedRequests {
    /// Most elements of `recent`. Two of them are at least the patience divided by this number apart.
    const STEPS: u32 = 16;

    /// Counts requests as unknown that have been complete for `patience` without an outcome. If nothing judges any request, the
    /// objectives have no outcomes.
    pub(crate) fn settle(
        &mut self,
        completed: u64,
        patience: Duration,
        now: Instant,
        objectives: Option<&mut ObjectiveTotals>,
    ) {
        let age = |at: Instant| now.saturating_duration_since(at);
        let is_later = |(at, count): &(Instant, u64)| *count < completed && age(*at) >= patience / Self::STEPS;
        if self.recent.back().is_none_or(is_later) {
            self.recent.push_back((now, completed));
        }
        let over = self.recent.iter().take_while(|(at, _)| age(*at) >= patience).count();
        let settled = self.recent.drain(..over).next_back();
        let Some((_, completed)) = settled else { return };
        match objectives.filter(|objectives| objectives.all.count() > 0) {
            Some(objectives) => objectives.count_unjudged(completed.saturating_sub(self.before)),
            None => self.before = completed,
        }
    }
}

#[cfg(test)]
mod tests {
    use trtllm_fold::request_times::{Answer, Times};

    use super::*;

    fn limits(ttft: u64, tpot: u64, e2e: u64) -> Objectives {
        let limit = |ms| (ms > 0).then(|| Duration::from_millis(ms));
        Objectives { ttft: limit(ttft), tpot: limit(tpot), e2e: limit(e2e) }
    }

    fn times(arrived: f64, first_token: f64, ended: f64) -> Times {
        let time = |seconds: f64| (seconds > 0.0).then_some(seconds);
        Times { arrived: time(arrived), scheduled: None, first_token: time(first_token), ended: time(ended) }
    }

    fn counted(limits: Objectives, requests: &[Served]) -> ObjectiveTotals {
        let mut totals = ObjectiveTotals::new(limits);
        for request in requests {
            totals.count(request, Scope::All);
        }
        totals
    }

    /// The increase of the histograms of TTFT, TPOT and E2E, each by these buckets.
    fn increase(of: [&[(f64, u64)]; 3], finished: &[(FinishReason, u64)]) -> Increase {
        let mut more = Increase::default();
        let histograms = [RequestHistogram::FirstToken, RequestHistogram::PerOutputToken, RequestHistogram::EndToEnd];
        for (histogram, buckets) in histograms.into_iter().zip(of) {
            more.histograms[histogram as usize].buckets = buckets.to_vec();
        }
        for (reason, requests) in finished {
            more.finished[*reason as usize] = *requests;
        }
        more
    }

    #[test]
    fn histograms_tell_the_outcomes_at_the_bounds_of_buckets() {
        let ttft: &[(f64, u64)] = &[(0.1, 4), (0.5, 3), (1.0, 2), (f64::INFINITY, 1)];
        let bounds = increase([ttft, &[], &[(1.0, 10), (f64::INFINITY, 0)]], &[(FinishReason::Stop, 10)]);
        // A request with one token has no time per output token.
        let finished = |finished| increase([&[], &[(0.05, 6), (0.1, 3)], &[(4.0, 10)]], finished);
        // 16 of 1703 requests miss ttft. The page has no time per output token at all, or lacks it for 10 requests.
        let late = |tpot| increase([&[(0.5, 1687), (1.0, 16)], tpot, &[(4.0, 1703)]], &[]);
        let o = outcomes;
        // The limits, the outcomes of the first one, and those of all.
        for (name, limits, more, first, all) in [
            ("at a bound", limits(500, 0, 0), &bounds, o(7, 3, 0), o(7, 3, 0)),
            ("at the first bound", limits(100, 0, 0), &bounds, o(4, 6, 0), o(4, 6, 0)),
            ("at the last bound", limits(1000, 0, 0), &bounds, o(9, 1, 0), o(9, 1, 0)),
            ("between bounds", limits(400, 0, 0), &bounds, o(0, 0, 10), o(0, 0, 10)),
            ("above all bounds", limits(2000, 0, 0), &bounds, o(0, 0, 10), o(0, 0, 10)),
            // 9 of 10 requests have met ttft, 8 e2e. The request that missed ttft may or may not have missed e2e.
            (
                "any pairing",
                limits(500, 0, 2000),
                &increase([&[(0.5, 9), (1.0, 1)], &[], &[(2.0, 8), (4.0, 2)]], &[]),
                o(9, 1, 0),
                o(7, 2, 1),
            ),
            ("one without a time", limits(0, 50, 0), &finished(&[]), o(6, 3, 1), o(6, 3, 1)),
            ("cancelled", limits(0, 50, 0), &finished(&[(FinishReason::Cancelled, 2)]), o(4, 1, 5), o(4, 1, 5)),
            ("failed", limits(0, 50, 0), &finished(&[(FinishReason::Timeout, 2)]), o(4, 3, 3), o(4, 3, 3)),
            ("all cancelled", limits(0, 50, 0), &finished(&[(FinishReason::Cancelled, 50)]), o(0, 0, 10), o(0, 0, 10)),
            ("no time per token", limits(500, 50, 0), &late(&[]), o(1687, 16, 0), o(0, 0, 1703)),
            ("times per token", limits(500, 50, 0), &late(&[(0.05, 1693)]), o(1687, 16, 0), o(1677, 6, 20)),
            ("all times per token", limits(500, 50, 0), &late(&[(0.05, 1703)]), o(1687, 16, 0), o(1687, 16, 0)),
        ] {
            let mut totals = ObjectiveTotals::new(limits);
            totals.count_histograms(more, Scope::All);
            assert_eq!((totals.ttft().or(totals.tpot()), totals.all), (Some(first), all), "{name}");
            if name == "any pairing" {
                assert_eq!(totals.e2e(), Some(o(8, 2, 0)));
            }
            assert_eq!(totals.goodput_tokens, None, "{name}");
        }
    }

    #[test]
    fn requests_with_entries_take_only_their_time_per_output_token_from_histograms() {
        let mut totals = ObjectiveTotals::new(limits(500, 50, 0));
        let request = Served::of(&times(10.0, 10.1, 12.0), None);
        totals.count(&request, Scope::WithoutPerToken);
        totals.count_histograms(&increase([&[(0.5, 1)], &[(0.05, 1)], &[(2.0, 1)]], &[]), Scope::PerToken);
        assert_eq!((totals.ttft(), totals.tpot()), (Some(outcomes(1, 0, 0)), Some(outcomes(1, 0, 0))));
        assert_eq!(totals.all, outcomes(1, 0, 0));
    }

    fn outcomes(met: u64, missed: u64, unknown: u64) -> Outcomes {
        Outcomes { met, missed, unknown }
    }

    #[test]
    fn a_time_at_its_limit_is_met() {
        for start in [1.0, 1_789_000_000.123_457] {
            // All times are exactly at their limits: 0.5 s, 10 × 0.05 s and 1 s.
            let at_limit = Served::of(&times(start, start + 0.5, start + 1.0), Some(11));
            let later = Served::of(&times(start, start + 0.500_01, start + 1.000_02), Some(11));
            let totals = counted(limits(500, 50, 1000), &[at_limit, later]);
            for objective in totals.each.into_iter().chain([Some(totals.all)]) {
                assert_eq!(objective, Some(outcomes(1, 1, 0)), "{start}");
            }
            assert_eq!(totals.goodput_tokens, Some(11));
        }
    }

    #[test]
    fn a_miss_beside_an_unknown_objective_is_unknown_for_all_objectives_together() {
        // trtllm-serve's entries have no number of tokens, so the time per token is never known. One of four requests misses ttft.
        let slow = Served::of(&times(10.0, 11.0, 12.0), None);
        let fast = Served::of(&times(10.0, 10.1, 12.0), None);
        let totals = counted(limits(500, 50, 0), &[slow, fast, fast, fast]);
        assert_eq!((totals.ttft(), totals.tpot()), (Some(outcomes(3, 1, 0)), Some(outcomes(0, 0, 4))));
        assert_eq!(totals.all, outcomes(0, 0, 4));
        let both_known = counted(limits(500, 0, 5000), &[slow, fast, fast, fast]);
        assert_eq!(both_known.all, outcomes(3, 1, 0));
    }

    #[test]
    fn a_failed_request_misses_every_objective() {
        let fast = Served { failed: true, ..Served::of(&times(10.0, 10.1, 10.2), Some(3)) };
        let nothing_known = Served { failed: true, ..Served::default() };
        let totals = counted(limits(500, 500, 500), &[fast, nothing_known]);
        for objective in totals.each.into_iter().chain([Some(totals.all)]) {
            assert_eq!(objective, Some(outcomes(0, 2, 0)));
        }
        assert_eq!(totals.goodput_tokens, Some(0));
    }

    #[test]
    fn the_time_for_each_token_of_a_generation_server_divides_by_the_tokens_of_its_span() {
        // Five tokens: one of the context server, then one each 100 ms.
        let times = Times { arrived: Some(10.0), scheduled: Some(10.5), first_token: Some(10.6), ended: Some(10.9) };
        let of = |transfer, tokens| {
            let request = Served::of_answer(times.arrived, &Answer::of(&times, transfer), tokens);
            let limits = |tpot| limits(0, tpot, 0);
            let met = |limit| counted(limits(limit), &[request]).tpot().unwrap().met;
            (request.time_to_first_token, met(99), met(101), counted(limits(101), &[request]).all)
        };
        let known = outcomes(1, 0, 0);
        assert_eq!(
            of(Some((10.1, 10.4)), Some(5)),
            (Some(0.5), 0, 1, known),
            "the context server's token is sent when scheduled"
        );
        let first = 10.6 - 10.0;
        assert_eq!(of(None, Some(5)), (Some(first), 0, 1, known), "if that is not known, the span has one token less");
        assert_eq!(of(Some((10.55, 10.58)), Some(5)), (Some(first), 0, 1, known), "the C++ Executor schedules first");
        assert_eq!(of(None, Some(2)), (Some(first), 0, 0, outcomes(0, 0, 1)), "the span has no further token");
        // Read as one engine, the span of three tokens would be divided by four.
        let limits = limits(0, 99, 0);
        assert_eq!(counted(limits, &[Served::of(&times, Some(5))]).tpot().unwrap().met, 1);
    }

    #[test]
    fn requests_before_the_first_one_that_is_judged_have_no_outcome() {
        let (mut unjudged, mut totals) = (UnjudgedRequests::default(), ObjectiveTotals::new(limits(500, 0, 0)));
        let (start, patience) = (Instant::now(), Duration::from_secs(5));
        let mut settle = |completed, second, totals: &mut ObjectiveTotals| {
            unjudged.settle(completed, patience, start + Duration::from_secs(second), Some(totals));
            totals.all.unknown
        };
        assert_eq!(settle(5000, 0, &mut totals), 0);
        assert_eq!(settle(5000, 10, &mut totals), 0);
        for _ in 0..5 {
            totals.count(&Served::of(&times(10.0, 10.1, 11.0), Some(3)), Scope::All);
        }
        settle(5007, 20, &mut totals);
        assert_eq!(settle(5007, 30, &mut totals), 2, "two of seven requests");
    }
}
