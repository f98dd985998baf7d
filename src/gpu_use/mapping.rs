//! Which GPUs serve which engine. Only what is certain counts. Pure.

use super::account::EngineId;

/// What is known of an engine's GPUs.
#[derive(Debug, Clone, Copy)]
pub struct EngineClaim<'a> {
    pub id: EngineId,
    /// UUIDs from the configuration; empty if it has none.
    pub configured: &'a [String],
}

/// The UUIDs of each engine's GPUs, sorted; none if they are not known.
pub(super) fn gpus_of(engines: &[EngineClaim<'_>]) -> Vec<Vec<String>> {
    let gpus = engines.iter().map(|engine| {
        let mut gpus = engine.configured.to_vec();
        gpus.sort();
        gpus
    });
    gpus.collect()
}
