//! The families of Dynamo's TensorRT-LLM worker that the engine's statistics can tell.

use crate::state::EngineSnapshot;
use trtllm_model::EngineName;

use super::super::catalog::Id;
use super::super::catalog::table::OF_DYNAMO;
use super::super::page::{Labels, Page};
use super::super::series_labels::SeriesLabels;
use super::super::writer::SampleWriter;

/// Dynamo's worker calls every engine `trtllm`. Only a worker that decodes receives a KV cache, so all transfers are of that mode.
#[must_use]
pub(in crate::metrics) fn dynamo_labels(name: &EngineName, model_is_unique: bool) -> SeriesLabels {
    let version = (!model_is_unique).then_some(("version", name.version.as_str()));
    let ours = [("disaggregation_mode", "decode"), ("engine_type", "trtllm"), ("model_name", name.model.as_str())];
    let extra = name.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    SeriesLabels::new(Labels::new(ours.into_iter().chain(version).chain(extra)), OF_DYNAMO)
}

/// Dynamo's families. An engine without transfers has none of them.
#[must_use]
pub(in crate::metrics) fn dynamo_page(labels: &SeriesLabels, snapshot: &EngineSnapshot) -> Page {
    let mut page = SampleWriter::new(labels);
    let transfers = &snapshot.requests.times.kv_transfers;
    let ended = transfers.latency.count();
    page.put(Id::DynamoTransferSuccess, (ended > 0).then_some(ended));
    for (family, histogram) in [
        (Id::DynamoTransferLatency, &transfers.latency),
        (Id::DynamoTransferBytes, &transfers.size),
        (Id::DynamoTransferSpeed, &transfers.speed),
    ] {
        page.observed(family, histogram);
    }
    page.page
}
