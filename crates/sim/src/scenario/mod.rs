//! Named situations with a known cause. A scenario is a healthy engine with one change that causes trouble. The submodules contain the
//! tables of situations.

mod drills;
mod faults;
mod healthy;
mod limits;
mod work;

pub use drills::{UNSOLVED, drills};

use crate::config::{CacheManager, Config, Era, Release};
use crate::load::Arrivals;

fn rate(config: &mut Config, rate: f64) {
    config.load.arrivals = Arrivals::Poisson { rate };
}

/// An engine and what it does. It is one scenario for each backend in `on`.
#[derive(Debug, Clone, Copy)]
struct Situation {
    name: &'static str,
    on: &'static [On],
    says: &'static str,
    /// Changes the default engine.
    change: fn(&mut Config),
    /// The cause of its trouble, and what cures it. Absent for a healthy engine.
    trouble: Option<(&'static str, &'static str)>,
}

const fn situation(name: &'static str, on: &'static [On], says: &'static str, change: fn(&mut Config)) -> Situation {
    Situation { name, on, says, change, trouble: None }
}

impl Situation {
    const fn trouble(self, cause: &'static str, cure: &'static str) -> Self {
        Self { trouble: Some((cause, cure)), ..self }
    }
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
    fn scenario(&self, situation: &Situation) -> Scenario {
        let mut config = Config { release: self.release, ..Config::default() };
        config.statistics.rows = false;
        (situation.change)(&mut config);
        Scenario {
            name: format!("{}{}", situation.name, self.suffix),
            backend: self.backend,
            cause: situation.trouble.map_or("none", |(cause, _)| cause),
            description: situation.says,
            config,
            cure: situation.trouble.map(|(_, cure)| cure),
        }
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
    /// The change that cures the trouble, in words. Absent for a healthy engine.
    pub cure: Option<&'static str>,
}

/// All scenarios: first those with a cause of trouble, then the healthy ones.
#[must_use]
pub fn all() -> Vec<Scenario> {
    let situations = [limits::TABLE, work::TABLE, faults::TABLE, healthy::TABLE].into_iter().flatten();
    situations.flat_map(|situation| situation.on.iter().map(|on| on.scenario(situation))).collect()
}

fn named(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

/// The scenario of this name or of this drill.
#[must_use]
pub fn find(name: &str) -> Option<Scenario> {
    named(name).or_else(|| drills().find_map(|(drill, scenario)| (drill == name).then_some(scenario)))
}
