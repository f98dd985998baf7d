//! Named situations with a known cause. A scenario is a healthy engine with one change that causes trouble, the change that cures
//! the trouble, and another remedy that does not help. The submodules contain the tables of situations.

mod faults;
mod healthy;
mod limits;
mod work;

use crate::config::{CacheManager, Config, Era, Release};
use crate::engine::Engine;
use crate::load::Arrivals;
use crate::truth::Felt;

/// What users notice in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    TimeToFirstToken,
    TimePerToken,
    /// The longest wait between two tokens.
    Gap,
    Throughput,
    Errors,
    /// Records that reach the reader. Users notice nothing, but the operator sees wrong numbers.
    Records,
}

impl Measure {
    /// The measured value as a cost: lower is better.
    #[must_use]
    pub fn cost(self, felt: &Felt) -> f64 {
        match self {
            Self::TimeToFirstToken => felt.ttft_p95,
            Self::TimePerToken => felt.tpot_p95,
            Self::Gap => felt.gap_p95,
            Self::Throughput => 1.0 / felt.tokens_per_second.max(1e-9),
            Self::Errors => felt.error_share,
            Self::Records => 1.0 - felt.records_share,
        }
    }
}

/// A remedy: what an operator would do, and what it changes in the simulation.
#[derive(Debug, Clone, Copy)]
pub struct Remedy {
    pub says: &'static str,
    pub apply: fn(&mut Config),
}

const MORE_CACHE: Remedy = Remedy { says: "double the KV cache", apply: |c| c.cache.blocks *= 2 };
const MORE_SLOTS: Remedy = Remedy { says: "raise max_batch_size to 256", apply: |c| c.limits.max_batch_size = 256 };
const MORE_TOKENS: Remedy = Remedy { says: "double max_num_tokens", apply: |c| c.limits.max_num_tokens *= 2 };

fn rate(config: &mut Config, rate: f64) {
    config.load.arrivals = Arrivals::Poisson { rate };
}

fn no_fault(config: &mut Config) {
    config.faults.clear();
}

/// A row of the tables of situations. It defines one scenario for each backend in `on`.
#[derive(Debug)]
struct Situation {
    name: &'static str,
    cause: &'static str,
    says: &'static str,
    on: &'static [On],
    change: fn(&mut Config),
    felt: Measure,
    cure: Remedy,
    other: Remedy,
}

/// A backend on which a situation is simulated.
#[derive(Debug)]
struct On {
    backend: &'static str,
    release: Release,
    /// Suffix of the scenario names for this backend.
    suffix: &'static str,
}

/// PyTorch with the second cache manager.
const V2: On =
    On { backend: "pytorch", release: Release::PyTorch { era: Era::Frames, cache: CacheManager::V2 }, suffix: "" };
/// PyTorch 1.0 with the first cache manager.
const V1: On =
    On { backend: "pytorch", release: Release::PyTorch { era: Era::One, cache: CacheManager::V1 }, suffix: "-v1" };
const CPP: On = On { backend: "tensorrt", release: Release::Cpp { major: 1, minor: 1 }, suffix: "-cpp" };
/// The last era of the C++ Executor that ran static batches itself.
const OLD_CPP: On = On { backend: "tensorrt", release: Release::Cpp { major: 0, minor: 16 }, suffix: "-cpp-0.16" };
const ALL: &[On] = &[V2, V1, CPP];
const PY: &[On] = &[V2, V1];
/// Backends whose scheduler can reserve the blocks of whole answers.
const RESERVING: &[On] = &[V1, CPP];

impl On {
    /// The default engine with this change.
    fn engine(&self, change: fn(&mut Config)) -> Config {
        let mut config = Config { release: self.release, ..Config::default() };
        config.statistics.rows = false;
        change(&mut config);
        config
    }
}

/// A named engine with a known cause of trouble, or a healthy one.
#[derive(Debug)]
pub struct Scenario {
    pub name: String,
    /// `tensorrt` or `pytorch`.
    pub backend: &'static str,
    /// The cause that the verdict must name: a value of `nv_trt_llm_limited_by`.
    pub cause: &'static str,
    pub description: &'static str,
    pub config: Config,
    pub felt: Measure,
    /// Absent for a healthy engine.
    pub cure: Option<Remedy>,
    pub other: Option<Remedy>,
}

impl Scenario {
    /// What users experience with this remedy between two times.
    #[must_use]
    pub fn felt_with(&self, remedy: Option<Remedy>, seed: u64, from: f64, until: f64) -> Felt {
        let mut config = self.config.clone();
        if let Some(remedy) = remedy {
            (remedy.apply)(&mut config);
        }
        let mut engine = Engine::new(config, seed);
        engine.run(until, |_| ());
        engine.felt(from, until)
    }
}

/// All scenarios: first those with a cause of trouble, then the healthy ones.
#[must_use]
pub fn all() -> Vec<Scenario> {
    let situations = [limits::TABLE, work::TABLE, faults::TABLE].into_iter().flatten();
    let troubled = situations.flat_map(|situation| {
        situation.on.iter().map(|on| Scenario {
            name: format!("{}{}", situation.name, on.suffix),
            backend: on.backend,
            cause: situation.cause,
            description: situation.says,
            config: on.engine(situation.change),
            felt: situation.felt,
            cure: Some(situation.cure),
            other: Some(situation.other),
        })
    });
    let healthy = healthy::TABLE.iter().map(|(name, on, says, change)| Scenario {
        name: format!("healthy-{name}"),
        backend: on.backend,
        cause: "none",
        description: says,
        config: on.engine(*change),
        felt: Measure::TimeToFirstToken,
        cure: None,
        other: None,
    });
    troubled.chain(healthy).collect()
}

/// The scenario of this name.
#[must_use]
pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}
