//! What is known of an engine's GPUs.

/// Identifies an engine as long as the exporter runs.
pub type EngineId = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineClaim<'a> {
    pub id: EngineId,
    /// UUIDs from the configuration; empty if it has none.
    pub configured: &'a [String],
    /// Processes that publish for the engine or host it.
    pub pids: Vec<u32>,
    /// The port of this host on which its server listens.
    pub port: Option<u16>,
}

impl EngineClaim<'_> {
    /// Nothing is known.
    #[must_use]
    pub fn new(id: EngineId) -> Self {
        Self { id, configured: &[], pids: Vec::new(), port: None }
    }
}
