//! The settings of an engine that explain its performance, as labels, and how long its start took.

use std::sync::Arc;

use crate::state::EngineSnapshot;
use trtllm_model::EngineSettings;
use trtllm_model::server_metrics::ConfigSection;

use super::catalog::Id;
use super::page::Labels;
use super::writer::SampleWriter;

/// Labels of `nv_trt_llm_engine_config_info` with trtllm-serve's own names for them.
const OF_SERVER: [(&str, ConfigSection, &str); 8] = [
    ("dtype", ConfigSection::Model, "dtype"),
    ("quantization", ConfigSection::Model, "quantization"),
    ("tensor_parallel_size", ConfigSection::Parallel, "tensor_parallel_size"),
    ("pipeline_parallel_size", ConfigSection::Parallel, "pipeline_parallel_size"),
    ("expert_parallel_size", ConfigSection::Parallel, "expert_parallel_size"),
    ("kv_cache_dtype", ConfigSection::KvCache, "cache_dtype"),
    ("tokens_per_block", ConfigSection::KvCache, "page_size"),
    ("speculative_method", ConfigSection::Speculative, "spec_method"),
];

impl SampleWriter<'_> {
    pub(super) fn config(&mut self, snapshot: &EngineSnapshot) {
        let of_server = |label: &str| {
            let (_, section, name) = OF_SERVER.iter().find(|(known, ..)| *known == label)?;
            let settings = snapshot.requests.server.config.get(section)?;
            settings.iter().find(|(setting, _)| setting == name).map(|(_, value)| value.clone())
        };
        let latest = snapshot.latest.as_ref();
        // 0 means that the engine does not tell.
        let number = |number: Option<i64>| number.filter(|number| *number > 0).map(|number| number.to_string());
        let of_records = |label: &str| match label {
            "tokens_per_block" => number(latest?.kv?.tokens_per_block),
            "max_batch_size" => number(latest?.batch_size_limits.fixed),
            "max_num_tokens" => number(latest?.token_limits.fixed),
            _ => None,
        };
        let of_about = |label: &str| snapshot.about.settings.get(label).map(str::to_owned);
        // Records come from the running engine, so they take precedence over its configuration.
        let told = |label| of_server(label).or_else(|| of_records(label)).or_else(|| of_about(label));
        let settings = EngineSettings::NAMES.map(|label| (label, told(label)));
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
