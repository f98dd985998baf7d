//! The name of an engine, which becomes the labels of its series.

use super::Objectives;

/// The identity of an engine: the labels of its series, and the objectives that its users were promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineName {
    pub model: String,
    pub version: String,
    /// Static labels from the configuration, and those of the engine's pod. Their names are valid and differ from the exporter's own.
    pub labels: Vec<(String, String)>,
    /// The kind of source, e.g. `trtllm-serve`; never a URL.
    pub source: &'static str,
    pub objectives: Objectives,
}

impl EngineName {
    /// An engine without configured labels and objectives.
    #[must_use]
    pub fn new(model: &str, version: &str, source: &'static str) -> Self {
        let (model, version) = (model.to_owned(), version.to_owned());
        Self { model, version, labels: Vec::new(), source, objectives: Objectives::default() }
    }
}
