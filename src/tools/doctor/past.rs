//! What limited the engines of a recording, as their exporter would have said it at that time.

use std::path::Path;

use super::super::record;
use super::read::Exporter;
use crate::cli::{DoctorArgs, unix_us};
use crate::config::ConfigError;
use trtllm_http::views::api;
use trtllm_intake::past::PastEngine;
use trtllm_recording::utc;

/// One for each engine.
pub(super) fn read(directory: &Path, arguments: &DoctorArgs) -> Result<Vec<Exporter>, ConfigError> {
    let engines = record::past(directory, arguments.past.at.map(unix_us), arguments.engine.as_deref())?;
    Ok(engines.iter().map(|engine| exporter(directory, engine)).collect())
}

fn exporter(directory: &Path, past: &PastEngine) -> Exporter {
    let slot = past.slot();
    let url = format!("{} {} in {} at {}", slot.name.model, slot.name.version, directory.display(), utc(past.at_us));
    let engines = serde_json::from_str(&api::engines(&past.state)).unwrap_or_default();
    let gpus = past.state.gpus().gpus.iter().map(|gpu| gpu.identity.uuid.clone()).collect();
    Exporter { url, is_read: true, engines, gpus, findings: past.state.findings(), ..Exporter::default() }
}
