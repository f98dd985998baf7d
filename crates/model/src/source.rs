//! Why reading a source can fail, and facts about its engine that are not numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use super::settings::EngineSettings;

/// Why a poll failed. The kinds differ in what an operator can do. Their order is that of the label values in the
/// metrics catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    Connect,
    Timeout,
    HttpStatus,
    NotJson,
    Truncated,
    TooLarge,
    Io,
    Engine,
}

impl ErrorKind {
    pub const ALL: [Self; 8] = [
        Self::Connect,
        Self::Timeout,
        Self::HttpStatus,
        Self::NotJson,
        Self::Truncated,
        Self::TooLarge,
        Self::Io,
        Self::Engine,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::HttpStatus => "http_status",
            Self::NotJson => "not_json",
            Self::Truncated => "truncated",
            Self::TooLarge => "too_large",
            Self::Io => "io",
            Self::Engine => "engine",
        }
    }

    /// The failure in words, without an address.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Connect => "no connection",
            Self::Timeout => "no answer in time",
            Self::HttpStatus => "an error status",
            Self::NotJson => "not the statistics of an engine",
            Self::Truncated => "an incomplete answer",
            Self::TooLarge => "an answer that is too long",
            Self::Io => "reading failed",
            Self::Engine => "the engine failed",
        }
    }
}

/// Why a record was skipped. The order is that of the label values in the metrics catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    NotJson,
    NotARecord,
    TooLong,
    Truncated,
    /// A value is impossible for an engine.
    Implausible,
    /// The answer has more records than the exporter reads at once.
    TooMany,
}

impl RejectReason {
    pub const ALL: [Self; 6] =
        [Self::NotJson, Self::NotARecord, Self::TooLong, Self::Truncated, Self::Implausible, Self::TooMany];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::NotARecord => "not_a_record",
            Self::TooLong => "too_long",
            Self::Truncated => "truncated",
            Self::Implausible => "implausible",
            Self::TooMany => "too_many",
        }
    }
}

/// One count per [`RejectReason`], in the same order.
pub type RejectCounts = [u64; RejectReason::ALL.len()];

/// Why a publisher was refused or dropped. The order is that of the label values in the metrics catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublisherRefusal {
    /// The publisher sent no line for a while, and another publisher needed its slot.
    Silent,
    /// All slots are in use.
    Full,
    /// The publisher's user is not allowed to publish.
    Uid,
    /// Another publisher or a configured engine already has the publisher's name.
    Name,
    /// There are too many engines.
    Engines,
}

impl PublisherRefusal {
    pub const ALL: [Self; 5] = [Self::Silent, Self::Full, Self::Uid, Self::Name, Self::Engines];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Full => "full",
            Self::Uid => "uid",
            Self::Name => "name",
            Self::Engines => "engines",
        }
    }
}

/// Counts the refused publishers of all ingest sockets. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct RefusedPublishers(Arc<[AtomicU64; PublisherRefusal::ALL.len()]>);

impl RefusedPublishers {
    pub fn count(&self, reason: PublisherRefusal) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// One count per [`PublisherRefusal`], in the same order.
    #[must_use]
    pub fn counts(&self) -> [u64; PublisherRefusal::ALL.len()] {
        self.0.each_ref().map(|count| count.load(Relaxed))
    }
}

/// Facts about an engine that are not numbers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineAbout {
    /// The backend that runs the model, e.g. `tensorrt` or `pytorch`.
    pub backend: Option<String>,
    /// Version of the engine's software.
    pub version: Option<String>,
    /// True if the engine is the built-in simulation.
    pub simulated: bool,
    /// How long each stage of its start took, in seconds.
    #[serde(default)]
    pub startup: StartupTimes,
    /// Settings from the publisher or the engine directory. Settings on a server's page are in
    /// [`super::ServerMetrics`].
    #[serde(default)]
    pub settings: EngineSettings,
}

/// Seconds per stage. The name of a stage is the path of its key in the server's JSON, joined with dots.
pub type StartupTimes = BTreeMap<String, f64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_indexed_in_the_order_of_the_variants() {
        assert!(ErrorKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
        assert!(PublisherRefusal::ALL.iter().enumerate().all(|(index, reason)| *reason as usize == index));
        assert!(RejectReason::ALL.iter().enumerate().all(|(index, reason)| *reason as usize == index));
    }
}
