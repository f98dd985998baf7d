//! A table of predictions and the truth.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use trtllm_records::Objectives;
use trtllm_what_if::{Answer, Range, ask};

use crate::cases::{Case, apply, change};
use crate::observed::observe;
use crate::truth::{Sizes, Truth, truth};

/// Seconds that the exporter watches.
const WATCHED: f64 = 300.0;
const TTFT: f64 = 0.25;

/// The seed, which no run used while the simulation was written. `TRTLLM_TEST_SEED` sets another one.
fn seed() -> u64 {
    std::env::var("TRTLLM_TEST_SEED").map_or(140_000, |seed| seed.parse().unwrap())
}

pub(crate) struct Row {
    engine: &'static str,
    change: &'static str,
    must_refuse: bool,
    is_uncertain: bool,
    answer: Answer,
    truth: Truth,
    /// Share of the changed engine's time with decoding batches that the watched engine has hardly run.
    unseen: f64,
    replicas: f64,
    closed: bool,
}

pub(crate) struct Table(Vec<Row>);

impl Table {
    pub(crate) fn play(cases: &[Case]) -> Self {
        let (next, rows) = (Mutex::new(0..cases.len()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let Some(place) = next.lock().unwrap().next() else { return };
                        for row in play(&cases[place], place) {
                            rows.lock().unwrap().push((place, row));
                        }
                    }
                });
            }
        });
        let mut rows = rows.into_inner().unwrap();
        rows.sort_by_key(|(place, _)| *place);
        Self(rows.into_iter().map(|(_, row)| row).collect())
    }
}

fn play(case: &Case, place: usize) -> Vec<Row> {
    let seed = seed() + place as u64 * 100;
    let objectives = Objectives { ttft: Some(Duration::from_secs_f64(TTFT)), ..Objectives::default() };
    let present = observe(&case.config, seed, objectives, WATCHED);
    let watched = Sizes::of(&case.config, seed, WATCHED);
    let rows = case.changes.iter().enumerate().map(|(number, text)| {
        let change = change(text, &case.config);
        let config = apply(&case.config, text, &present);
        let answer = ask(&present, &change);
        let is_about_sizes =
            answer.reason.as_deref().is_some_and(|reason| reason.contains("hardly run") || reason.contains("median"));
        let unseen = || Sizes::of(&config, seed + 10 + number as u64, 1000.0).unseen_in(&watched);
        Row {
            engine: case.engine,
            change: text,
            must_refuse: case.refused.contains(text),
            is_uncertain: case.uncertain.contains(text),
            answer,
            unseen: if is_about_sizes { unseen() } else { 0.0 },
            truth: truth(&config, seed + 10 + number as u64, TTFT, present.requests.len()),
            replicas: f64::from(change.replicas),
            closed: matches!(case.config.load.arrivals, trtllm_sim::load::Arrivals::Closed { .. }),
        }
    });
    rows.collect()
}

/// One number, as predicted and as it truly is.
pub(crate) struct Number {
    what: &'static str,
    predicted: Range,
    truth: f64,
    /// Relative error allowed. None if only the interval counts.
    bound: Option<f64>,
}

impl Row {
    fn true_stable(&self) -> bool {
        self.closed || self.truth.growth < 0.02
    }

    /// Arrivals ÷ what the changed engine can truly serve. A closed loop never has too many requests.
    fn utilization(&self) -> f64 {
        if self.closed { 0.0 } else { self.truth.utilization }
    }

    /// A refusal is right if the case requires it or if its reason is true: the engine is near its capacity, it runs batches that
    /// were not seen, or too few requests were watched for a median.
    fn refusal_is_right(&self) -> bool {
        let Some(reason) = &self.answer.reason else { return !self.must_refuse };
        let says = |words: &str| reason.contains(words);
        let is_near = (0.7..1.2).contains(&self.utilization());
        self.must_refuse
            || (says("its capacity") || says("would keep up")) && is_near
            || says("hardly run") && self.unseen > 0.1
            || says("median latencies") && (self.truth.ttft_varies > 0.25 || self.unseen > 0.5)
    }

    fn numbers(&self) -> Vec<Number> {
        let Some(then) = self.answer.then.as_ref() else { return Vec::new() };
        let truth = &self.truth;
        let calm = self.true_stable() && self.utilization() <= 0.85;
        let mut numbers = vec![Number {
            what: "req/s",
            predicted: then.requests_per_second,
            truth: truth.requests_per_second * self.replicas,
            bound: Some(0.05).filter(|_| !self.is_uncertain),
        }];
        numbers.push(Number {
            what: "tok/s",
            predicted: then.tokens_per_second,
            truth: truth.tokens_per_second * self.replicas,
            bound: Some(0.05).filter(|_| !self.is_uncertain),
        });
        if let Some(growth) = then.queue_growth_per_second {
            numbers.push(Number { what: "growth/s", predicted: growth, truth: truth.growth_per_second, bound: None });
        }
        let bound = calm.then_some(0.15);
        if let (Some(ttft), Some(tpot), true) = (then.ttft_seconds, then.tpot_seconds, self.true_stable()) {
            numbers.push(Number { what: "TTFT p50", predicted: ttft.p50, truth: truth.ttft_p50, bound });
            numbers.push(Number { what: "TTFT p95", predicted: ttft.p95, truth: truth.ttft_p95, bound: None });
            numbers.push(Number { what: "TPOT p50", predicted: tpot.p50, truth: truth.tpot_p50, bound });
            if let Some(met) = then.objectives_met.and_then(|met| met.ttft) {
                numbers.push(Number { what: "TTFT met", predicted: met, truth: truth.ttft_met, bound: None });
            }
        }
        numbers
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.0 {
            write!(f, "{:38} {:45}", row.engine, row.change)?;
            if let Some(reason) = &row.answer.reason {
                let (full, varies, unseen) = (row.utilization(), 100.0 * row.truth.ttft_varies, 100.0 * row.unseen);
                writeln!(
                    f,
                    " refused, truly ρ {full:.2}, median TTFT ± {varies:.0} %, unseen {unseen:.0} %: {reason}"
                )?;
                continue;
            }
            let stable = row.answer.then.as_ref().is_some_and(|then| then.stable);
            let name = |stable| if stable { "stable" } else { "grows" };
            write!(f, " {:6} {:6} ρ {:.2}", name(stable), name(row.true_stable()), row.utilization())?;
            for number in row.numbers() {
                let miss = 100.0 * (number.predicted.value / number.truth - 1.0);
                let holds = if number.predicted.holds(number.truth) { ' ' } else { '!' };
                write!(
                    f,
                    " | {} {:.4} [{:.4} {:.4}] true {:.4} {miss:+.1} %{holds}",
                    number.what, number.predicted.value, number.predicted.low, number.predicted.high, number.truth
                )?;
            }
            writeln!(f)?;
        }
        let numbers: Vec<Number> = self.0.iter().filter(|row| row.answer.supported).flat_map(Row::numbers).collect();
        let held = numbers.iter().filter(|number| number.predicted.holds(number.truth)).count();
        writeln!(
            f,
            "{} changes, {} answered, {held} of {} intervals hold the truth",
            self.0.len(),
            self.0.iter().filter(|row| row.answer.supported).count(),
            numbers.len()
        )
    }
}

impl Table {
    pub(crate) fn changes(&self) -> usize {
        self.0.len()
    }

    /// Whether at least 85 of 100 intervals hold the truth.
    pub(crate) fn holds(&self) -> bool {
        let numbers: Vec<Number> = self.0.iter().filter(|row| row.answer.supported).flat_map(Row::numbers).collect();
        let held = numbers.iter().filter(|number| number.predicted.holds(number.truth)).count();
        100 * held >= 85 * numbers.len()
    }

    /// The predictions that are beyond their bounds.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for row in &self.0 {
            let mut add = |text: String| wrong.push(format!("{}, {}: {text}", row.engine, row.change));
            if !row.refusal_is_right() {
                add(format!("refused: {:?}", row.answer.reason));
            }
            let Some(then) = row.answer.then.as_ref() else { continue };
            if then.stable != row.true_stable() {
                add(format!("stable {}, growth {:.3}", then.stable, row.truth.growth));
            }
            for number in row.numbers() {
                let miss = (number.predicted.value / number.truth - 1.0).abs();
                if number.bound.is_some_and(|bound| miss > bound) {
                    add(format!("{} {:.4}, truly {:.4}", number.what, number.predicted.value, number.truth));
                }
            }
        }
        wrong
    }
}
