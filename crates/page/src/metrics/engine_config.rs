//! The settings of an engine that explain its performance, as labels, and how long its start took.

use std::sync::Arc;

use crate::state::EngineSnapshot;

use super::catalog::Id;
use super::page::Labels;
use super::writer::SampleWriter;

impl SampleWriter<'_> {
    pub(super) fn config(&mut self, snapshot: &EngineSnapshot) {
        let settings = snapshot.settings();
        if settings.iter().all(|(_, value)| value.is_none()) {
            return;
        }
        let labels = settings.into_iter().map(|(label, value)| (label, value.unwrap_or_else(|| "unknown".to_owned())));
        self.page.push(Id::EngineConfigInfo, &Arc::new(Labels::extend(self.labels.base(), labels)), 1_u64);
    }

    pub(super) fn startup(&mut self, snapshot: &EngineSnapshot) {
        for (stage, seconds) in &snapshot.about.startup {
            let labels = Labels::extend(self.labels.base(), [("stage", stage.clone())]);
            self.page.push(Id::StartupTime, &Arc::new(labels), *seconds);
        }
    }
}
