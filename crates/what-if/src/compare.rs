//! Compares two engines, or one engine at two times: their load, and the costs of equal work. The costs are computed from the
//! iterations of each engine.

use serde::{Deserialize, Serialize};

use crate::answer::{Range, combine_errors};
use crate::costs::CostEstimator;
use crate::measured_engine::{EqualWork, MeasuredEngine, Workload};

/// The least relative standard error of a cost. Work that counts as equal still differs by this much.
const LEAST_ERROR: f64 = 0.012;
/// Costs of similar work err in the same direction, so they count as at most this many independent costs.
const INDEPENDENT: f64 = 4.0;
/// The widest allowed interval: half of the interval ÷ the value.
const WIDE: f64 = 0.15;
/// In a normal distribution, 90 % of the values lie within this many standard errors.
const NINETY: f64 = 1.645;
/// Minimum number of known iterations of each engine.
const ENOUGH_ITERATIONS: f64 = 200.0;

/// JSON of `compare --format json`: each number of the second engine ÷ the same number of the first. Absent unless both are
/// known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadRatios {
    pub requests_per_second: Option<f64>,
    pub prompt_tokens: Option<f64>,
    pub output_tokens: Option<f64>,
    /// Share of the prompts' tokens that was not found in the KV cache.
    pub uncached_share: Option<f64>,
    pub batch: Option<f64>,
}

/// JSON of `compare --format json`: the time of the second engine ÷ the time of the first for equal work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineRatios {
    pub slowdown: Range,
    /// The slowdown of iterations that only decode.
    pub decode: Option<Range>,
    /// The slowdown of iterations with prompts in them.
    pub context: Option<Range>,
}

/// JSON of `compare --format json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub workload: WorkloadRatios,
    /// Absent if the costs of one engine are not known well enough, or the work of the two differs too much.
    pub engine: Option<EngineRatios>,
    pub says: String,
}

/// `before` and `after`: the first and the second engine, or one engine at two times.
pub fn compare(before: &MeasuredEngine, after: &MeasuredEngine) -> Comparison {
    let workload = workload(before.workload.as_ref(), after.workload.as_ref());
    let engine = engine(before, after);
    let says = match &engine {
        Ok(engine) => says(&engine.slowdown, &workload),
        Err(why) => format!("The costs cannot be compared: {why}."),
    };
    Comparison { workload, engine: engine.ok(), says }
}

fn workload(before: Option<&Workload>, after: Option<&Workload>) -> WorkloadRatios {
    let (Some(before), Some(after)) = (before, after) else { return WorkloadRatios::default() };
    let ratio = |of: fn(&Workload) -> Option<f64>| {
        let (before, after) = (of(before)?, of(after)?);
        (before > 0.0).then(|| after / before)
    };
    WorkloadRatios {
        requests_per_second: ratio(|of| Some(of.requests_per_second)),
        prompt_tokens: ratio(|of| of.prompt_tokens),
        output_tokens: ratio(|of| of.output_tokens),
        uncached_share: ratio(|of| Some(1.0 - of.cached_share?)),
        batch: ratio(|of| Some(of.batch)),
    }
}

fn engine(before: &MeasuredEngine, after: &MeasuredEngine) -> Result<EngineRatios, &'static str> {
    let too_few = "too few iterations of one of them are known; let it serve for some minutes";
    if [before, after].iter().any(|side| iterations(side) < ENOUGH_ITERATIONS) {
        return Err(too_few);
    }
    // Prices only correct small differences of work. An engine whose costs have steps may have no prices of its own.
    let prices = before.prices.or(after.prices).ok_or("their costs are too far from linear")?;
    let costs = |side: &MeasuredEngine| CostEstimator::new(&side.equal_work, side.prices.unwrap_or(prices));
    let (first, second) = costs(before).zip(costs(after)).ok_or(too_few)?;
    // After a slowdown, the known costs are outdated. The slowdown of the last minute corrects them.
    let scale = |side: &MeasuredEngine| side.slowdown.unwrap_or(1.0);
    let drift = scale(after) / scale(before);
    let part = |is_part: fn(&EqualWork) -> bool| {
        // Transferring costs to other work has a bias. Comparing in both directions cancels it.
        let there = ratio(&first, after.equal_work.iter().filter(|work| is_part(work)))?;
        let back = ratio(&second, before.equal_work.iter().filter(|work| is_part(work)))?;
        let log = (there.log - back.log) / 2.0 + drift.ln();
        Some(range(log, combine_errors(there.error, back.error) / 2.0))
    };
    let decode = part(|known| known.work.context_tokens <= 0.0);
    let context = part(|known| known.work.context_tokens > 0.0);
    let slowdown = match (decode, context) {
        (Some(decode), Some(context)) => {
            // Weighted by the time of the second engine's iterations.
            let share = after.workload.and_then(|of| of.context_share).unwrap_or(0.5);
            let mean = |of: fn(&Range) -> f64| 1.0 / ((1.0 - share) / of(&decode) + share / of(&context));
            Range { value: mean(|of| of.value), low: mean(|of| of.low), high: mean(|of| of.high) }
        }
        (one, other) => one.or(other).ok_or(too_few)?,
    };
    if slowdown.relative() > WIDE {
        return Err("their work differs too much; compare them at times with more similar loads");
    }
    Ok(EngineRatios { slowdown, decode, context })
}

fn iterations(side: &MeasuredEngine) -> f64 {
    side.equal_work.iter().map(|work| work.iterations).sum()
}

/// Natural logarithm of a ratio, and its standard error.
struct LogRatio {
    log: f64,
    error: f64,
}

/// The weighted mean of the seconds that `works` took ÷ the seconds that `costs` predict for them.
fn ratio<'a>(costs: &CostEstimator, works: impl Iterator<Item = &'a EqualWork>) -> Option<LogRatio> {
    let each: Vec<(f64, f64, f64)> = works
        .filter_map(|work| {
            let expected = costs.by_nearest(&work.work)?;
            let log = (work.seconds / expected.mean).ln();
            // Weighted by time. Work that only one engine does has a much lower weight than work that both do.
            let weight = work.iterations.min(100.0) * work.seconds / expected.error.powi(4);
            Some((log, weight, expected.error))
        })
        .filter(|(log, weight, _)| log.is_finite() && *weight > 0.0)
        .collect();
    let all: f64 = each.iter().map(|(_, weight, _)| weight).sum();
    if all <= 0.0 {
        return None;
    }
    let mean = |of: &dyn Fn(&(f64, f64, f64)) -> f64| each.iter().map(|one| one.1 * of(one)).sum::<f64>() / all;
    let log = mean(&|one| one.0);
    let spread = mean(&|one| (one.0 - log).powi(2) + one.2.powi(2));
    let count = all.powi(2) / each.iter().map(|(_, weight, _)| weight.powi(2)).sum::<f64>();
    Some(LogRatio { log, error: combine_errors(LEAST_ERROR, (spread / count.min(INDEPENDENT)).sqrt()) })
}

fn range(log: f64, error: f64) -> Range {
    let at = |errors: f64| (log + errors * error).exp();
    Range { value: at(0.0), low: at(-NINETY), high: at(NINETY) }
}

fn says(slowdown: &Range, workload: &WorkloadRatios) -> String {
    let percent = 100.0 * (slowdown.value - 1.0).abs();
    let engine = if slowdown.low > 1.0 {
        format!("Equal work takes {percent:.0} % longer in the second ({:.2} ×).", slowdown.value)
    } else if slowdown.high < 1.0 {
        format!("Equal work takes {percent:.0} % less time in the second ({:.2} ×).", slowdown.value)
    } else {
        format!("Equal work takes as long in both ({:.2} ×).", slowdown.value)
    };
    let named = [
        (workload.requests_per_second, "requests a second"),
        (workload.prompt_tokens, "tokens of a prompt"),
        (workload.output_tokens, "tokens of an answer"),
        (workload.uncached_share, "share of prompts that is computed"),
    ];
    let changed: Vec<String> = named
        .into_iter()
        .filter_map(|(ratio, name)| Some((ratio?, name)))
        .filter(|(ratio, _)| (ratio - 1.0).abs() >= 0.1)
        .map(|(ratio, name)| format!("{name} {ratio:.2} ×"))
        .collect();
    if changed.is_empty() { engine } else { format!("{engine} The load differs: {}.", changed.join(", ")) }
}
