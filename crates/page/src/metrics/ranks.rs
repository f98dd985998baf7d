//! The load and the tokens of each rank of an engine with attention data parallelism.

use std::sync::Arc;

use trtllm_engines::Engine;

use super::catalog::Id;
use super::page::Labels;
use super::writer::EngineWriter;

impl EngineWriter<'_> {
    pub(super) fn ranks(&mut self, engine: &Engine) {
        for (rank, load) in engine.ranks() {
            let number = rank.number().map_or("other".to_owned(), |number| number.to_string());
            let labels = Arc::new(Labels::extend(self.labels.base(), [("rank", number)]));
            if let Some(scheduled) = load.and_then(|load| load.scheduled) {
                self.page.push(Id::RankScheduledRequests, &labels, scheduled);
            }
            if let Some(active) = load.filter(|load| !load.is_copy).and_then(|load| load.active) {
                self.page.push(Id::RankActiveRequests, &labels, active);
            }
            if !engine.totals().is_sampled() {
                self.page.push(Id::RankContextTokens, &labels, rank.context_tokens);
                self.page.push(Id::RankGenerationTokens, &labels, rank.generation_tokens);
            }
        }
    }
}
