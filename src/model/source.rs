//! How a source of statistics can fail, and what it reports about its engine besides numbers.

/// Why a poll failed, by what an operator can do about it. The order is that of the catalog's label values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// Why a record was skipped. The order is that of the catalog's label values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    NotJson,
    NotARecord,
    TooLong,
    Truncated,
    /// A value that no engine can have.
    Implausible,
    /// The answer has more than is read at once.
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

/// One count per [`RejectReason`], in its order.
pub type RejectCounts = [u64; RejectReason::ALL.len()];

/// Why a publisher was refused or dropped. The order is that of the catalog's label values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublisherRefusal {
    /// It sent no line for a while, and another publisher needed its place.
    Silent,
    /// All places are in use.
    Full,
    /// Its user may not publish.
    Uid,
}

impl PublisherRefusal {
    pub const ALL: [Self; 3] = [Self::Silent, Self::Full, Self::Uid];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Full => "full",
            Self::Uid => "uid",
        }
    }
}

/// One count per [`PublisherRefusal`], in its order.
pub type RefusalCounts = [u64; PublisherRefusal::ALL.len()];

/// Facts about an engine that are not numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineAbout {
    /// The backend that runs the model, e.g. `tensorrt` or `pytorch`.
    pub backend: Option<String>,
    /// Version of the engine's software.
    pub version: Option<String>,
    /// The engine is the built-in simulation.
    pub simulated: bool,
}

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
