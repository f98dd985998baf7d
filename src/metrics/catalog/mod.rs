//! Every metric of the page, once: name, type, unit, labels and their values, help, origin. Order is page order.
//! The renderers, the page builders, `catalog` and the tests all read this table; nothing else names a metric.

pub mod equivalents;
pub mod fields;
mod table;

pub use table::{CATALOG, Id};

/// How a metric behaves, and under which type each format announces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    /// Name ends in `_total`.
    Counter,
    /// A counter that Triton named without `_total`. It keeps its bare name in every format: text `counter`, OpenMetrics
    /// `unknown` (the one type that lets a counter keep such a name), protobuf COUNTER.
    LegacyCounter,
    Histogram,
}

impl Kind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter | Self::LegacyCounter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// What `collect[]` selects by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Triton's names, byte for byte.
    Triton,
    /// Our own engine families.
    Engine,
    Gpu,
    /// The exporter itself.
    Exporter,
    /// Name sets of others, on request.
    Compat,
}

impl Group {
    pub const ALL: [Self; 5] = [Self::Triton, Self::Engine, Self::Compat, Self::Gpu, Self::Exporter];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Triton => "triton",
            Self::Engine => "engine",
            Self::Compat => "compat",
            Self::Gpu => "gpu",
            Self::Exporter => "exporter",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}

/// The label by which one family's series of one engine or GPU differ, with all values it can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    pub label: &'static str,
    pub values: &'static [&'static str],
}

/// One family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub group: Group,
    /// Base unit where the name ends in one.
    pub unit: Option<&'static str>,
    /// Labels common to every series of the family.
    pub labels: &'static [&'static str],
    pub variant: Option<Variant>,
    pub help: &'static str,
    /// Where the value comes from, in the source's own names.
    pub origin: &'static str,
}

impl Metric {
    /// Whether its histogram shows native buckets beside the classic ones, where a format has them: ours do, those under
    /// another exporter's name are as that exporter's.
    #[must_use]
    pub fn has_native_buckets(&self) -> bool {
        self.kind == Kind::Histogram && matches!(self.group, Group::Engine | Group::Exporter)
    }
}

impl Id {
    #[must_use]
    pub fn metric(self) -> &'static Metric {
        &CATALOG[self as usize]
    }
}

#[cfg(test)]
mod tests;
