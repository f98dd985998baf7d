//! Counts blocks and cached tokens by tier (GPU, host, disk). The engine numbers its cache levels from 0, GPU first.
//! Newer releases name the tier of each level, and several levels may have the same tier.

use trtllm_records::IterationStats;
use trtllm_records::named_variants::named_variants;

use super::saturating::{add_known, unsigned};

/// Number of cache levels that are counted separately. Engines have one to four levels.
pub const MAX_LEVELS: usize = 64;

named_variants! {
    /// Where blocks of the KV cache are.
    pub enum Tier {
        Gpu = "gpu",
        Host = "host",
        Disk = "disk",
        /// The engine names no tier, or a tier that this exporter does not know.
        Other = "other",
    }
}

/// Blocks or tokens by tier.
pub type TierNumbers = [Option<u64>; Tier::ALL.len()];

/// Prompt tokens found in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CachedTokens {
    pub by_tier: TierNumbers,
    /// The element after the first [`MAX_LEVELS`], if there is one, has the sum of all further levels.
    pub by_level: Vec<LevelTokens>,
}

/// Prompt tokens found in one cache level. The tier of a level changes if an engine restarts with another configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelTokens {
    /// Tokens that were found while the engine did not name the tiers of its levels.
    pub unnamed: Option<u64>,
    pub by_tier: TierNumbers,
}

impl Tier {
    /// The usual tier of a level, for engines that do not name it.
    pub(crate) fn of_level(level: u64) -> Self {
        match level {
            0 => Self::Gpu,
            1 => Self::Host,
            2 => Self::Disk,
            _ => Self::Other,
        }
    }

    /// The tier that the engine names for a level.
    fn named(record: &IterationStats, level: usize) -> Option<Self> {
        let name = record.kv_cache_level_tiers.as_ref()?.get(level)?;
        let tiers = [Self::Gpu, Self::Host, Self::Disk];
        Some(tiers.into_iter().find(|tier| tier.name().eq_ignore_ascii_case(name)).unwrap_or(Self::Other))
    }
}

/// Adds a record's numbers by level.
pub(crate) fn add_levels(total: &mut TierNumbers, record: &IterationStats, numbers: Option<&Vec<i64>>) {
    for (level, number) in numbers.into_iter().flatten().enumerate() {
        let tier = Tier::named(record, level).unwrap_or_else(|| Tier::of_level(level as u64));
        add_known(&mut total[tier as usize], Some(unsigned(*number)));
    }
}

impl CachedTokens {
    pub(crate) fn absorb(&mut self, record: &IterationStats) {
        let Some(levels) = &record.iter_cached_tokens_by_level else { return };
        add_levels(&mut self.by_tier, record, Some(levels));
        for (level, tokens) in levels.iter().enumerate() {
            let at = level.min(MAX_LEVELS);
            if at == self.by_level.len() {
                self.by_level.push(LevelTokens::default());
            }
            let tier = if at < MAX_LEVELS { Tier::named(record, level) } else { Some(Tier::Other) };
            let of_level = &mut self.by_level[at];
            let total = tier.map_or(&mut of_level.unnamed, |tier| &mut of_level.by_tier[tier as usize]);
            add_known(total, Some(unsigned(*tokens)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absorb(totals: &mut CachedTokens, tokens: &[i64], tiers: Option<&[&str]>) {
        totals.absorb(&IterationStats {
            iter_cached_tokens_by_level: Some(tokens.to_vec()),
            kv_cache_level_tiers: tiers.map(|tiers| tiers.iter().map(|&tier| tier.to_owned()).collect()),
            ..IterationStats::default()
        });
    }

    #[test]
    fn cached_tokens_are_counted_in_the_tier_of_their_level() {
        let mut totals = CachedTokens::default();
        absorb(&mut totals, &[12, 8, 1, 1], None);
        assert_eq!(totals.by_tier, [12, 8, 1, 1].map(Some));
        absorb(&mut totals, &[12, 8, 1, 1], Some(&["GPU", "disk", "tape", "host"]));
        assert_eq!(totals.by_tier, [24, 9, 9, 2].map(Some));
    }

    #[test]
    fn levels_of_one_tier_are_summed_in_the_tier_and_apart_by_level() {
        let mut totals = CachedTokens::default();
        absorb(&mut totals, &[5, 0, 2, 1], Some(&["gpu", "gpu", "host", "disk"]));
        absorb(&mut totals, &[1, 4, 0, -9], Some(&["gpu", "gpu", "host", "disk"]));
        assert_eq!(totals.by_tier, [Some(10), Some(2), Some(1), None]);
        let gpu = |tokens| [Some(tokens), None, None, None];
        let host = [None, Some(2), None, None];
        let disk = [None, None, Some(1), None];
        let levels: Vec<_> = totals.by_level.iter().map(|level| level.by_tier).collect();
        assert_eq!(levels, [gpu(6), gpu(4), host, disk]);
        assert!(totals.by_level.iter().all(|level| level.unnamed.is_none()));
    }

    /// The tokens must not move to the new tier: its counter would jump, and the counter of the old tier would vanish.
    #[test]
    fn a_level_that_changes_its_tier_keeps_the_tokens_of_the_old_tier() {
        let mut totals = CachedTokens::default();
        absorb(&mut totals, &[5], None);
        absorb(&mut totals, &[4], Some(&["host"]));
        absorb(&mut totals, &[1], Some(&["disk"]));
        absorb(&mut totals, &[2], Some(&["host"]));
        let by_tier = [None, Some(6), Some(1), None];
        assert_eq!(totals.by_level, [LevelTokens { unnamed: Some(5), by_tier }]);
    }

    #[test]
    fn an_absurd_number_of_levels_takes_bounded_memory() {
        let mut totals = CachedTokens::default();
        absorb(&mut totals, &[1; 1000], None);
        assert_eq!(totals.by_level.len(), MAX_LEVELS + 1);
        let other = [None, None, None, Some(936)];
        assert_eq!(totals.by_level[MAX_LEVELS], LevelTokens { unnamed: None, by_tier: other });
    }

    #[test]
    fn no_cached_tokens_create_no_series() {
        let mut totals = CachedTokens::default();
        absorb(&mut totals, &[], Some(&["gpu"]));
        totals.absorb(&IterationStats::default());
        assert_eq!(totals, CachedTokens::default());
    }
}
