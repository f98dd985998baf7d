//! Encodes the exporter's own families in the order of the catalog.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::families::{Families, by_variant};
use super::{HttpMetrics, process};
use crate::build;
use crate::metrics::catalog::Id;
use crate::metrics::page::Labels;
use trtllm_engines::SourceStatus;
use trtllm_records::gpu::{GpuInventory, GpuState, NvmlState};
use trtllm_records::{RecorderCounts, RefusedPublishers};
use trtllm_service::log;
use trtllm_service::supervise;

/// The data of all own families at one moment.
#[derive(Debug)]
pub(in crate::metrics) struct OwnMetrics {
    /// The engines on the page, each with the labels of its source's series.
    pub(in crate::metrics) sources: Vec<(Arc<Labels>, SourceStatus)>,
    pub(in crate::metrics) gpus: Arc<GpuInventory>,
    pub(in crate::metrics) http: HttpMetrics,
    /// Absent without a recorder.
    pub(in crate::metrics) recorder: Option<RecorderCounts>,
    pub(in crate::metrics) refused_publishers: RefusedPublishers,
    /// Whether the last reload of the configuration succeeded, if there is a file.
    pub(in crate::metrics) config_reload: Option<bool>,
}

impl Collector for OwnMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families::new(encoder);
        let build = [
            ("commit_date", build::COMMIT_DATE),
            ("revision", build::REVISION),
            ("rustversion", build::COMPILER),
            ("version", build::VERSION),
        ];
        families.series(Id::BuildInfo, [(build, ConstGauge::new(1_u64))])?;
        let reload = self.config_reload.map(|successful| ([("", ""); 0], ConstGauge::new(u64::from(successful))));
        families.series(Id::ConfigReload, reload)?;
        self.sources(&mut families)?;
        self.nvml(&mut families)?;
        families.single(Id::Scrapes, &self.http.scrapes)?;
        let refused = by_variant(Id::HttpRefused, self.http.refused.iter().cloned());
        families.series(Id::HttpRefused, refused.map(|(reason, count)| ([reason], count)))?;
        families.single(Id::ScrapeDuration, &self.http.scrape_duration)?;
        let restarts = by_variant(Id::TaskRestarts, supervise::restarts().map(ConstCounter::new));
        families.series(Id::TaskRestarts, restarts.map(|(task, count)| ([task], count)))?;
        families.single(Id::LogLinesDropped, &ConstCounter::new(log::dropped_lines()))?;
        if let Some(recorder) = &self.recorder {
            families.single(Id::RecorderItems, &ConstCounter::new(recorder.items_written()))?;
            families.single(Id::RecorderDropped, &ConstCounter::new(recorder.items_dropped()))?;
            families.single(Id::RecorderErrors, &ConstCounter::new(recorder.errors()))?;
            families.single(Id::RecorderSize, &ConstGauge::new(recorder.bytes()))?;
        }
        process::encode(&mut families)
    }
}

impl OwnMetrics {
    fn sources(&self, families: &mut Families<'_>) -> fmt::Result {
        let sources = || self.sources.iter().map(|(labels, source)| (labels.pairs(), source));
        let gauge = |value: fn(&SourceStatus) -> Option<u64>| {
            sources().filter_map(move |(labels, source)| Some((labels, ConstGauge::new(value(source)?))))
        };
        families.series(Id::SourceUp, gauge(|source| Some(source.up.into())))?;
        families.series(Id::RecordsMissing, gauge(|source| Some(source.records_missing.into())))?;
        let unread = |source: &SourceStatus| source.unread_keys.as_ref().map(|keys| keys.len() as u64);
        families.series(Id::UnreadKeys, gauge(unread))?;
        families.series(Id::Polls, sources().map(|(labels, source)| (labels, source.metrics.polls.clone())))?;
        let errors = sources().flat_map(|(labels, source)| {
            let by_kind = by_variant(Id::PollErrors, source.metrics.errors.iter().cloned());
            by_kind.map(move |(kind, count)| ((labels, [kind]), count))
        });
        families.series(Id::PollErrors, errors)?;
        let durations = sources().map(|(labels, source)| (labels, source.metrics.poll_duration.clone()));
        families.series(Id::PollDuration, durations)?;
        let last_success = sources().filter_map(|(labels, source)| {
            let seconds = source.last_success_us? as f64 / 1e6;
            Some((labels, ConstGauge::new(seconds)))
        });
        families.series(Id::LastSuccess, last_success)?;
        let rejected = sources().flat_map(|(labels, source)| {
            let by_reason = by_variant(Id::RecordsRejected, source.metrics.rejected.iter().cloned());
            by_reason.map(move |(reason, count)| ((labels, [reason]), count))
        });
        families.series(Id::RecordsRejected, rejected)?;
        // Only fields that were ever impossible have a series, because there are more than a hundred fields.
        let values = sources().flat_map(|(labels, source)| {
            let by_field = source.values_rejected.iter();
            by_field.map(move |(field, count)| ((labels, [("field", *field)]), ConstCounter::new(*count)))
        });
        families.series(Id::ValuesRejected, values)?;
        families.series(Id::IngestConnections, gauge(|source| source.connections))?;
        let refused = by_variant(Id::PublishersRefused, self.refused_publishers.counts().map(ConstCounter::new));
        families.series(Id::PublishersRefused, refused.map(|(reason, count)| ([reason], count)))
    }

    /// The GPU supervisor alone counts NVML's errors, and any pair of call and error can appear. Its inventory
    /// therefore has plain counts instead of a fixed set of counters.
    fn nvml(&self, families: &mut Families<'_>) -> fmt::Result {
        let gpus = &*self.gpus;
        families.single(Id::NvmlUp, &ConstGauge::new(u64::from(gpus.nvml == NvmlState::Up)))?;
        let states = NvmlState::ALL.map(|state| ConstGauge::new(u64::from(state == gpus.nvml)));
        families.series(Id::NvmlState, by_variant(Id::NvmlState, states).map(|(state, gauge)| ([state], gauge)))?;
        let on = gpus.nvml != NvmlState::Off;
        if on {
            families.single(Id::NvmlInitErrors, &ConstCounter::new(gpus.init_errors))?;
        }
        let errors = gpus.read_errors.iter().map(|error| {
            let labels = [("call", error.call), ("error", error.error)];
            (labels, ConstCounter::new(error.count))
        });
        families.series(Id::NvmlReadErrors, errors)?;
        if on {
            let seen = gpus.gpus.iter().filter(|gpu| gpu.state != GpuState::Lost).count();
            families.single(Id::NvmlGpus, &ConstGauge::new(seen as u64))?;
            families.single(Id::NvmlGpusExpected, &ConstGauge::new(u64::from(gpus.expected)))?;
        }
        Ok(())
    }
}
