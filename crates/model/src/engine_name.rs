//! The name of an engine, as its series have it.

use super::Objectives;

/// The identity of an engine: the labels of its series, and what is promised to its users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineName {
    pub model: String,
    pub version: String,
    /// Static labels from the configuration. Their names are valid and differ from the exporter's own.
    pub labels: Vec<(String, String)>,
    /// The kind of source, e.g. `trtllm-serve`; never a URL.
    pub source: &'static str,
    /// Configured like the labels.
    pub objectives: Objectives,
}

impl EngineName {
    /// An engine without labels and objectives of the configuration.
    #[must_use]
    pub fn new(model: &str, version: &str, source: &'static str) -> Self {
        let (model, version) = (model.to_owned(), version.to_owned());
        Self { model, version, labels: Vec::new(), source, objectives: Objectives::default() }
    }
}
