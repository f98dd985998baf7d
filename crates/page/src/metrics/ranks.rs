//! The load and the tokens of each rank of an engine with attention data parallelism.

use std::sync::Arc;

use crate::state::EngineSnapshot;
use trtllm_engine::rank_totals::RankLoad;
use trtllm_engine::{EngineState, Latest};

use super::catalog::Id;
use super::page::Labels;
use super::writer::EngineWriter;

impl EngineWriter<'_> {
    /// `load`: absent for a stale engine.
    pub(super) fn ranks(&mut self, snapshot: &EngineSnapshot, load: Option<&Latest>) {
        let Some(totals) = &snapshot.totals.ranks else { return };
        // After a restart, the engine can have a single rank and so no load by rank.
        let has_load = load.is_some_and(|latest| latest.attention_dp_ranks() > Some(1));
        let idle = snapshot.state == EngineState::Idle;
        for rank in totals.ranks() {
            let number = rank.number().map_or("other".to_owned(), |number| number.to_string());
            let labels = Arc::new(Labels::extend(self.labels.base(), [("rank", number)]));
            if let Some(RankLoad { scheduled, active, .. }) = rank.load.filter(|_| has_load) {
                if let Some(scheduled) = scheduled {
                    self.page.push(Id::RankScheduledRequests, &labels, if idle { 0 } else { scheduled });
                }
                if let Some(active) = active {
                    self.page.push(Id::RankActiveRequests, &labels, if idle { 0 } else { active });
                }
            }
            if !snapshot.totals.is_sampled() {
                self.page.push(Id::RankContextTokens, &labels, rank.context_tokens);
                self.page.push(Id::RankGenerationTokens, &labels, rank.generation_tokens);
            }
        }
    }
}
