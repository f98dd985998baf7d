//! The load of an engine, drawn from its last requests. Successive requests are drawn together, so that bursts stay bursts, and each
//! prompt keeps the length of its answer. Known are the last requests that have finished. So among those that arrived last, the ones with
//! long answers are missing, and of the time before the first one that is known to have finished, only these are known. Both would make
//! the load smaller than it is, so only requests are drawn that arrived in between.

use std::ops::Range;

use crate::measured_engine::Request;
use crate::random::Random;

/// Minimum number of successive requests that are drawn together.
const STRETCH: usize = 32;
/// Requests closer together than this share of the mean distance belong to one burst.
const TOGETHER: f64 = 0.05;
/// Nearly all requests are within this quantile.
const NEARLY_ALL: f64 = 0.99;
/// All known requests are drawn if the arrivals of fewer than these are known without a gap.
const ENOUGH: usize = 4 * STRETCH;

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Arrivals {
    /// Requests arrive independently of each other, on average this many per second.
    Open { rate: f64 },
    /// Each client sends a request when its previous request has ended.
    Closed { clients: f64 },
    /// All requests arrived at the start.
    Once,
}

#[derive(Debug, Clone)]
pub(crate) struct Load<'a> {
    requests: &'a [Request],
    /// Those of them that arrived while all arrivals are known.
    complete: &'a [Request],
    pub(crate) arrivals: Arrivals,
}

impl<'a> Load<'a> {
    /// `requests`: in the order of arrival.
    pub(crate) fn of(requests: &'a [Request]) -> Self {
        let known = complete(requests);
        let known = if known.len() < ENOUGH { 0..requests.len() } else { known };
        Self { requests, complete: &requests[known.clone()], arrivals: arrivals(requests, known) }
    }

    /// Number of requests of which the load is known.
    pub(crate) fn size(&self) -> usize {
        self.complete.len()
    }

    /// Seconds within which nearly all answers end after their first token.
    pub(crate) fn longest_answer(&self) -> f64 {
        nearly_all(self.requests, |request| request.ended - request.first_token)
    }

    /// The known requests, as they arrived.
    pub(crate) fn known(&self) -> Vec<Request> {
        let first = self.requests.first().map_or(0.0, |request| request.arrived);
        self.requests.iter().map(|request| Request { arrived: request.arrived - first, ..*request }).collect()
    }

    /// Draws `count` requests for one of `replicas` engines, which together receive `rate` times the current rate.
    pub(crate) fn draw(&self, count: usize, rate: f64, replicas: u32, random: &mut Random) -> Vec<Request> {
        let (mut coming, mut at) = (Vec::with_capacity(count), 0.0);
        if self.complete.len() < 2 {
            return coming;
        }
        let gap = |index: usize| self.complete[index].arrived - self.complete[index - 1].arrived;
        // Only whole bursts are drawn. Parts of two bursts in a row would look like one long burst.
        let last = self.complete.len() - 1;
        let least = TOGETHER * (self.complete[last].arrived - self.complete[0].arrived) / last as f64;
        while coming.len() < count {
            let any = 1 + random.below(last);
            let first = (any..=last).chain(1..any).find(|index| gap(*index) > least).unwrap_or(any);
            for (taken, index) in (first..=last).chain(1..first).enumerate() {
                if taken >= STRETCH && gap(index) > least {
                    break;
                }
                at += gap(index) / rate;
                // Requests are distributed to the replicas at random.
                if replicas == 1 || random.below(replicas as usize) == 0 {
                    coming.push(Request { arrived: at, ..self.complete[index] });
                }
            }
        }
        coming.truncate(count);
        coming
    }
}

fn arrivals(requests: &[Request], known: Range<usize>) -> Arrivals {
    let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return Arrivals::Once };
    let span = last.arrived - first.arrived;
    let end = requests.iter().map(Request::end).fold(0.0, f64::max);
    if span < 0.05 * (end - first.arrived) {
        return Arrivals::Once;
    }
    let in_flight = in_flight(requests, known.clone());
    let (mean, variance) = mean_and_variance(&in_flight);
    // In an open load, the number of requests in the engine varies at least as much as with independent requests.
    if mean >= 3.0 && variance < 0.05 * mean {
        return Arrivals::Closed { clients: mean };
    }
    let complete = &requests[known];
    let gaps = complete.len().saturating_sub(1) as f64;
    let seconds = complete.first().zip(complete.last()).map_or(0.0, |(first, last)| last.arrived - first.arrived);
    Arrivals::Open { rate: gaps / seconds.max(1e-9) }
}

/// The places of the requests that arrived while all arrivals are known: after the first known end, and so early that nearly all have ended.
fn complete(requests: &[Request]) -> Range<usize> {
    let ends = requests.iter().map(Request::end);
    let (first_end, last_end) =
        ends.fold((f64::INFINITY, 0.0_f64), |(first, last), end| (first.min(end), last.max(end)));
    let longest = nearly_all(requests, |request| request.ended);
    let index = |at: f64| requests.partition_point(|request| request.arrived < at);
    let from = index(first_end);
    from..index(last_end - longest).max(from)
}

/// A number that nearly all requests do not exceed.
fn nearly_all(requests: &[Request], of: fn(&Request) -> f64) -> f64 {
    let mut numbers: Vec<f64> = requests.iter().map(of).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get((numbers.len() as f64 * NEARLY_ALL) as usize).copied().unwrap_or(0.0)
}

/// The number of requests in the engine just after each of the arrivals `known`.
fn in_flight(requests: &[Request], known: Range<usize>) -> Vec<f64> {
    let mut ends: Vec<f64> = requests.iter().map(Request::end).collect();
    ends.sort_by(f64::total_cmp);
    // The next request of a client arrives a moment after the end of its previous one.
    let ended = |at: f64| ends.partition_point(|end| *end <= at + 1e-6);
    known.map(|index| (index + 1) as f64 - ended(requests[index].arrived) as f64).collect()
}

/// The mean and the variance of a sample.
pub(crate) fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (values.len() as f64 - 1.0).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arrived: f64, ended: f64) -> Request {
        Request { arrived, prompt: 100, cached: 0, output: ended as u32, first_token: 0.1, ended }
    }

    #[test]
    fn clients_that_wait_for_their_answers_are_not_an_open_load() {
        // Eight clients; each request takes between 0.5 and 1.5 s.
        let (mut random, mut requests, mut free) = (Random::new(1), Vec::new(), vec![0.0_f64; 8]);
        for _ in 0..800 {
            let client = (0..8).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap_or(0);
            let takes = 0.5 + random.unit();
            requests.push(request(free[client], takes));
            free[client] += takes;
        }
        let load = Load::of(&requests);
        let Arrivals::Closed { clients } = load.arrivals else { panic!("{:?}", load.arrivals) };
        assert!((clients - 8.0).abs() < 0.5, "{clients}");
    }

    #[test]
    fn requests_at_the_ends_whose_neighbours_are_unknown_are_not_drawn() {
        // Ten a second at random; each tenth takes 20 s, the others 1 s. Known are those that ended in a minute.
        let (mut random, mut at) = (Random::new(1), 0.0);
        let all = (0..2000).map(|index| {
            at -= (1.0 - random.unit()).ln() / 10.0;
            request(at, if index % 10 == 0 { 20.0 } else { 1.0 })
        });
        let known: Vec<_> = all.filter(|request| (100.0..160.0).contains(&(request.arrived + request.ended))).collect();
        let naive = known.len() as f64 / (known[known.len() - 1].arrived - known[0].arrived);
        assert!(naive < 8.0, "{naive}");
        let load = Load::of(&known);
        let Arrivals::Open { rate } = load.arrivals else { panic!("{:?}", load.arrivals) };
        assert!((rate - 10.0).abs() < 1.0, "{rate}");
        let drawn = load.draw(4000, 1.0, 1, &mut Random::new(1));
        let rate = drawn.len() as f64 / drawn[drawn.len() - 1].arrived;
        let long = drawn.iter().filter(|coming| coming.output == 20).count() as f64 / 4000.0;
        assert!((rate - 10.0).abs() < 1.0 && (long - 0.1).abs() < 0.01, "{rate} a second, {long} of them long");
    }

    #[test]
    fn the_rate_and_the_bursts_of_a_load_are_drawn_again() {
        let mut random = Random::new(1);
        // A burst of ten requests every ten seconds.
        let requests: Vec<_> = (0..1000).map(|at| request(f64::from(at / 10 * 10), 2.0)).collect();
        let load = Load::of(&requests);
        let Arrivals::Open { rate } = load.arrivals else { panic!("{:?}", load.arrivals) };
        assert!((rate - 1.0).abs() < 0.02, "{rate}");
        let drawn = load.draw(1000, 2.0, 1, &mut random);
        let together = drawn.windows(2).filter(|two| two[0].arrived == two[1].arrived).count();
        assert_eq!(together, 900);
        // No two bursts become one.
        let mut bursts = drawn.chunk_by(|one, next| one.arrived == next.arrived).map(<[Request]>::len);
        assert!(bursts.all(|requests| requests == 10));
        let rate = drawn.len() as f64 / drawn[drawn.len() - 1].arrived;
        assert!((rate - 2.0).abs() < 0.4, "{rate}");
        assert_eq!(load.draw(10, 1.0, 2, &mut random).len(), 10);
    }
}
