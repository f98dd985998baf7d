//! Named situations with a known cause. A scenario is a healthy engine with one change that causes trouble, the change that cures
//! it, and another remedy that does not help.

use crate::config::{CacheManager, Config, Era, Release};
use crate::engine::Engine;
use crate::scenarios::{HEALTHY, situations};
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

/// A row of the table of situations. It gives one scenario for each backend.
#[derive(Debug)]
pub(crate) struct Situation {
    pub(crate) name: &'static str,
    pub(crate) cause: &'static str,
    pub(crate) says: &'static str,
    pub(crate) on: &'static [On],
    pub(crate) change: fn(&mut Config),
    pub(crate) felt: Measure,
    pub(crate) cure: Remedy,
    pub(crate) other: Remedy,
}

/// A backend that a situation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// PyTorch with the second cache manager.
    V2,
    /// PyTorch 1.0 with the first cache manager.
    V1,
    Cpp,
}

impl On {
    fn release(self) -> Release {
        match self {
            Self::V2 => Release::PyTorch { era: Era::Frames, cache: CacheManager::V2 },
            Self::V1 => Release::PyTorch { era: Era::One, cache: CacheManager::V1 },
            Self::Cpp => Release::Cpp { major: 1, minor: 1 },
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::V2 => "",
            Self::V1 => "-v1",
            Self::Cpp => "-cpp",
        }
    }
}

/// A scenario.
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

/// All scenarios: those with a cause first, then healthy ones.
#[must_use]
pub fn all() -> Vec<Scenario> {
    let base = |on: On| {
        let mut config = Config { release: on.release(), ..Config::default() };
        config.statistics.rows = false;
        config
    };
    let backend = |on: On| if on == On::Cpp { "tensorrt" } else { "pytorch" };
    let troubled = situations().flat_map(|situation| {
        situation.on.iter().map(move |on| {
            let mut config = base(*on);
            (situation.change)(&mut config);
            Scenario {
                name: format!("{}{}", situation.name, on.suffix()),
                backend: backend(*on),
                cause: situation.cause,
                description: situation.says,
                config,
                felt: situation.felt,
                cure: Some(situation.cure),
                other: Some(situation.other),
            }
        })
    });
    let healthy = HEALTHY.iter().map(|(name, on, says, change)| {
        let mut config = base(*on);
        change(&mut config);
        Scenario {
            name: format!("healthy-{name}"),
            backend: backend(*on),
            cause: "none",
            description: says,
            config,
            felt: Measure::TimeToFirstToken,
            cure: None,
            other: None,
        }
    });
    troubled.chain(healthy).collect()
}

/// The scenario of this name.
#[must_use]
pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}
