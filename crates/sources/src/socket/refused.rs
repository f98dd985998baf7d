//! Why a publisher cannot have the name that it asks for.

use trtllm_records::PublisherRefusal;

/// Limit of the engines that publishers may name.
pub(super) const MAX_ENGINES: usize = 64;

/// Why a publisher cannot have its name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("model {model:?} version {version:?} belongs to {by}; give each engine its own name")]
    Taken { model: String, version: String, by: &'static str },
    #[error("there are {MAX_ENGINES} engines already; lower --engine.forget-after if old names are not needed")]
    TooMany,
    #[error(
        "the hello of {} has no valid {field}; send an object with model and version as text, and derived as true or false",
        model.as_ref().map_or("a publisher".to_owned(), |model| format!("model {model:?}"))
    )]
    Unclear { model: Option<String>, field: &'static str },
}

impl Refused {
    pub(super) fn reason(&self) -> PublisherRefusal {
        match self {
            Self::Taken { .. } | Self::Unclear { .. } => PublisherRefusal::Name,
            Self::TooMany => PublisherRefusal::Engines,
        }
    }
}
