//! The tables of situations. The module `scenario` documents their members.

mod faults;
mod healthy;
mod limits;
mod work;

use crate::config::Config;
use crate::load::Arrivals;
use crate::scenario::{On, Remedy, Situation};

pub(crate) use healthy::HEALTHY;

/// All situations with a cause.
pub(crate) fn situations() -> impl Iterator<Item = &'static Situation> {
    [limits::TABLE, work::TABLE, faults::TABLE].into_iter().flatten()
}

const ALL: &[On] = &[On::V2, On::V1, On::Cpp];
const PY: &[On] = &[On::V2, On::V1];

const MORE_CACHE: Remedy = Remedy { says: "double the KV cache", apply: |c| c.cache.blocks *= 2 };
const MORE_SLOTS: Remedy = Remedy { says: "raise max_batch_size to 256", apply: |c| c.limits.max_batch_size = 256 };
const MORE_TOKENS: Remedy = Remedy { says: "double max_num_tokens", apply: |c| c.limits.max_num_tokens *= 2 };

fn rate(config: &mut Config, rate: f64) {
    config.load.arrivals = Arrivals::Poisson { rate };
}

fn no_fault(config: &mut Config) {
    config.faults.clear();
}
