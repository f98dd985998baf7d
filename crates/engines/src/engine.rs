//! What is known of one engine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use trtllm_analysis::ObservedEngine;
use trtllm_analysis::objectives::ObjectiveTotals;
use trtllm_fold::batch_time::TimedBatch;
use trtllm_fold::orchestrator::OrchestratorTotals;
use trtllm_fold::rank_totals::{Rank, RankLoad};
use trtllm_fold::request_totals::RequestTotals;
use trtllm_fold::{EngineState, EngineTotals, Latest};
use trtllm_records::gpu::{EngineGpus, GpuInventory};
use trtllm_records::server_metrics::ConfigSection;
use trtllm_records::{EngineAbout, EngineSettings, IterationStats};

use super::source::SourceStatus;

/// Labels of settings, each with the section and the name under which trtllm-serve reports the setting.
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

/// A record, and the batch whose time it told: its own, or the one before.
#[derive(Debug, Clone)]
pub struct KeptRecord {
    pub record: Arc<IterationStats>,
    pub timed: Option<TimedBatch>,
}

/// What a source tells. Sums over what it does not tell are unknown, and not 0.
#[derive(Debug, Clone, Copy)]
pub struct Tells {
    /// False for sources of finished requests, and for VisualGen.
    pub iterations: bool,
    /// Whether iterations tell requests and blocks. Also false for an iteration log (`log:`).
    pub requests: bool,
}

/// What is known of one engine, under the lock of its slot. Its intake and the judgement write it.
#[derive(Debug)]
pub struct Engine {
    pub state: EngineState,
    pub observed: ObservedEngine,
    pub source: SourceStatus,
    pub about: EngineAbout,
    /// The GPUs that serve the engine, if they are known.
    pub gpus: Option<Arc<EngineGpus>>,
    /// The GPUs with which the engine was last judged, until its intake takes them for the recorder.
    pub inventory: Option<Arc<GpuInventory>>,
    /// The last records as received, oldest first. Scrapes do not read them.
    pub recent: VecDeque<KeptRecord>,
}

impl Engine {
    /// An engine whose source is not known yet.
    pub fn starting() -> Self {
        Self {
            state: EngineState::Starting,
            observed: ObservedEngine::new(Duration::ZERO),
            source: SourceStatus::default(),
            about: EngineAbout::default(),
            gpus: None,
            inventory: None,
            recent: VecDeque::new(),
        }
    }

    pub fn latest(&self) -> Option<&Latest> {
        self.observed.fold.latest()
    }

    pub fn totals(&self) -> &EngineTotals {
        &self.observed.fold.totals
    }

    pub fn requests(&self) -> &RequestTotals {
        &self.observed.fold.requests.totals
    }

    pub fn tells(&self) -> Tells {
        let iterations = !self.source.only_requests && !self.latest().is_some_and(|latest| latest.is_visual_gen);
        Tells { iterations, requests: iterations && !self.source.only_log }
    }

    /// Absent without configured objectives.
    pub fn objectives(&self) -> Option<&ObjectiveTotals> {
        self.observed.analysis.objectives.as_ref()
    }

    /// The counts of an orchestrator. `None` for an engine.
    pub fn orchestrator(&self) -> Option<&OrchestratorTotals> {
        self.observed.fold.orchestrator()
    }

    /// The last record as the load gauges show it: absent for a stale engine, and with a load of 0 for an idle one.
    pub fn load(&self) -> Option<Latest> {
        let latest = self.latest().filter(|_| !self.state.is_stale())?;
        Some(if self.state == EngineState::Idle { latest.idle() } else { *latest })
    }

    /// The ranks of an engine with attention data parallelism, each with its load in the last iteration. The load is absent for a
    /// stale engine, and 0 for an idle one.
    pub fn ranks(&self) -> impl Iterator<Item = (&Rank, Option<RankLoad>)> {
        // After a restart, the engine can have a single rank and so no load by rank.
        let has_load = self.load().is_some_and(|latest| latest.attention_dp_ranks() > Some(1));
        let ranks = self.totals().ranks.iter().flat_map(|totals| &totals.ranks);
        ranks.map(move |rank| {
            let load = rank.load.filter(|_| has_load);
            (rank, if self.state == EngineState::Idle { load.map(RankLoad::idle) } else { load })
        })
    }

    /// Number of GPUs that the engine runs on, on all nodes: the one that trtllm-serve reports, else tensor × pipeline parallel
    /// size. Attention data parallelism and expert parallelism divide these GPUs and need no others. `None` if the engine reports
    /// no valid number.
    pub fn gpu_count(&self) -> Option<usize> {
        let positive = |value: &String| value.parse().ok().filter(|count: &usize| *count > 0);
        let parallel = self.requests().server.config.get(&ConfigSection::Parallel);
        let of_server = parallel.and_then(|config| config.iter().find(|(name, _)| name == "gpu_count"));
        // If only one of the two sizes is known, the engine has at least as many GPUs.
        let is_size = |label: &str| matches!(label, "tensor_parallel_size" | "pipeline_parallel_size");
        let settings = self.settings();
        let sizes = settings.iter().filter(|(label, _)| is_size(label)).filter_map(|(_, value)| value.as_ref());
        let product = || sizes.filter_map(positive).reduce(usize::saturating_mul);
        of_server.and_then(|(_, count)| positive(count)).or_else(product)
    }

    /// The settings and versions of the engine by name.
    pub fn configuration(&self) -> BTreeMap<String, String> {
        let names = [("backend", self.about.backend.clone()), ("engine_version", self.about.version.clone())];
        let told = self.settings().into_iter().chain(names);
        told.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Settings by label of `nv_trt_llm_engine_config_info`, as far as the engine reports them.
    pub fn settings(&self) -> [(&'static str, Option<String>); EngineSettings::NAMES.len()] {
        let of_server = |label: &str| {
            let (_, section, name) = OF_SERVER.iter().find(|(known, ..)| *known == label)?;
            let settings = self.requests().server.config.get(section)?;
            settings.iter().find(|(setting, _)| setting == name).map(|(_, value)| value.clone())
        };
        let latest = self.latest();
        // 0 means that the engine does not report the number.
        let number = |number: Option<i64>| number.filter(|number| *number > 0).map(|number| number.to_string());
        let of_records = |label: &str| match label {
            "tokens_per_block" => number(latest?.kv?.tokens_per_block),
            "max_batch_size" => number(latest?.batch_size_limits.fixed),
            "max_num_tokens" => number(latest?.token_limits.fixed),
            _ => None,
        };
        let of_about = |label: &str| self.about.settings.get(label).map(str::to_owned);
        // The server and the records tell what the running engine uses, so they take precedence over its configuration.
        let known = |label| of_server(label).or_else(|| of_records(label)).or_else(|| of_about(label));
        EngineSettings::NAMES.map(|label| (label, known(label)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of GPUs of an engine whose server and whose configuration report these settings.
    fn gpu_count(of_server: &[(&str, &str)], of_config: &[(&str, &str)]) -> Option<usize> {
        let mut engine = Engine::starting();
        let settings = of_server.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let requests = &mut engine.observed.fold.requests.totals;
        Arc::make_mut(&mut requests.server).config.insert(ConfigSection::Parallel, settings);
        let mut settings = EngineSettings::default();
        of_config.iter().for_each(|(name, value)| settings.set(name, value));
        engine.about.settings = settings;
        engine.gpu_count()
    }

    const TENSOR: &str = "tensor_parallel_size";
    const PIPELINE: &str = "pipeline_parallel_size";

    #[test]
    fn an_engine_has_as_many_gpus_as_its_server_says_or_else_tensor_times_pipeline_parallel_size() {
        let sizes = [(TENSOR, "8"), (PIPELINE, "2"), ("expert_parallel_size", "8")];
        assert_eq!(gpu_count(&sizes, &[]), Some(16));
        assert_eq!(gpu_count(&[], &sizes), Some(16));
        // The server's own number includes context parallelism.
        assert_eq!(
            gpu_count(&[&sizes[..], &[("context_parallel_size", "2"), ("gpu_count", "32")]].concat(), &[]),
            Some(32)
        );
        assert_eq!(gpu_count(&[], &[(TENSOR, "8")]), Some(8));
        assert_eq!(gpu_count(&[], &[]), None);
    }

    #[test]
    fn an_impossible_number_of_gpus_is_not_used() {
        for wrong in ["0", "-1", "", "none", "1.5", "99999999999999999999"] {
            assert_eq!(gpu_count(&[("gpu_count", wrong)], &[]), None, "{wrong}");
            assert_eq!(gpu_count(&[("gpu_count", wrong), (TENSOR, "4")], &[]), Some(4), "{wrong}");
            assert_eq!(gpu_count(&[], &[(TENSOR, wrong), (PIPELINE, "2")]), Some(2), "{wrong}");
        }
        assert_eq!(gpu_count(&[], &[(TENSOR, "9999999999999"), (PIPELINE, "9999999999999")]), Some(usize::MAX));
    }
}
