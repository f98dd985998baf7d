//! What a family is, and the methods with which the catalog defines one. Does not know the catalog.

use std::fmt;

use trtllm_records::named_variants::named_variants;
use trtllm_records::schema::When;

/// The tables of the catalog, in page order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Triton,
    EngineCounters,
    EngineHistograms,
    EngineGauges,
    Benchmark,
    EngineGpus,
    Verdict,
    Trtllm,
    Dynamo,
    Vllm,
    TritonCore,
    Orchestrator,
    Dcgm,
    Gpu,
    Mig,
    Exporter,
}

/// A family of the catalog.
#[derive(Clone, Copy)]
pub struct Id {
    /// The table, and the index in it. Places are in page order.
    pub(super) place: (Table, u8),
    metric: &'static Metric,
}

impl Id {
    pub(super) const fn new(table: Table, index: u8, metric: &'static Metric) -> Self {
        Self { place: (table, index), metric }
    }

    #[must_use]
    pub const fn metric(self) -> &'static Metric {
        self.metric
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Id {}

impl fmt::Debug for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.metric.name)
    }
}

/// The kind of a metric. It determines the type that each format declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Gauge,
    /// The name ends in `_total`.
    Counter,
    /// A counter that Triton named without `_total`. It keeps its bare name in every format: text `counter`,
    /// OpenMetrics `unknown` (the only type that allows a counter such a name), protobuf COUNTER.
    LegacyCounter,
    Histogram,
}

impl MetricKind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter | Self::LegacyCounter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

named_variants! {
    /// The groups of families that `collect[]` selects.
    pub enum Group {
        /// Triton's names, byte for byte.
        Triton = "triton",
        /// The engine families that this exporter defines.
        Engine = "engine",
        /// Families of other exporters, if `--metrics.compat` names them.
        Compat = "compat",
        Gpu = "gpu",
        /// The exporter itself.
        Exporter = "exporter",
    }
}

impl Group {
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}

named_variants! {
    /// Which families are on the page: `--metrics.profile`.
    pub enum Profile {
        /// What the rules, dashboards and autoscalers of deploy/ read, and the exporter's own health.
        Default = "default",
        Full = "full",
    }
}

/// What the page of [`Profile::Default`] has of a family. The full page has all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InDefault {
    Nothing,
    Everything,
    /// Of a state set, only the series that is 1.
    CurrentState,
}

named_variants! {
    /// How much a dashboard can rely on a family.
    pub enum Stability {
        /// Another project defined the name and the meaning; the family follows that project.
        Inherited = "inherited",
        /// Name, type, labels and meaning change only with a breaking release.
        Stable = "stable",
        /// May change or disappear with any release.
        Experimental = "experimental",
    }
}

/// The label that distinguishes a family's series of one engine or GPU, with all its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    pub label: &'static str,
    pub values: &'static [&'static str],
}

/// One family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub group: Group,
    pub stability: Stability,
    /// Base unit, if the name ends in it.
    pub unit: Option<&'static str>,
    /// Labels of every series of the family, sorted; the variant's label is not repeated here.
    pub labels: &'static [&'static str],
    pub variant: Option<Variant>,
    pub help: &'static str,
    /// HELP on `/metrics/gateway`, if the numbers have another meaning there.
    pub gateway_help: Option<&'static str>,
    /// The fields of the schema that feed it, separated by spaces: a key, which stands for that key in every struct, or
    /// `struct.key`.
    pub feeds: &'static str,
    /// Another family that is fed by the same, and so needs the same statistics.
    pub like: Option<Id>,
    /// Kinds of statistics that feed it beside these. One kind is enough.
    pub when: &'static [When],
    /// The set of `--metrics.compat`, empty for the exporter's own families.
    pub set: &'static str,
    pub in_default: InDefault,
}

impl Metric {
    /// What the families of one area have in common: a family without a name. Each definition of a family starts from
    /// it.
    pub(super) const fn area(group: Group, stability: Stability, labels: &'static [&'static str]) -> Self {
        // Of engines and GPUs, each family of the default page is marked. Of the others, each is on it.
        let in_default = match group {
            Group::Engine | Group::Gpu => InDefault::Nothing,
            Group::Triton | Group::Compat | Group::Exporter => InDefault::Everything,
        };
        Self {
            name: "",
            kind: MetricKind::Gauge,
            group,
            stability,
            unit: None,
            labels,
            variant: None,
            help: "",
            gateway_help: None,
            feeds: "",
            like: None,
            when: &[],
            set: "",
            in_default,
        }
    }

    /// An area of families of another project, in this set of `--metrics.compat`.
    pub(super) const fn compat(set: &'static str, labels: &'static [&'static str]) -> Self {
        Self { set, ..Self::area(Group::Compat, Stability::Inherited, labels) }
    }

    pub(super) const fn gauge(self, name: &'static str) -> Self {
        Self { kind: MetricKind::Gauge, name, ..self }
    }

    pub(super) const fn counter(self, name: &'static str) -> Self {
        Self { kind: MetricKind::Counter, name, ..self }
    }

    pub(super) const fn legacy_counter(self, name: &'static str) -> Self {
        Self { kind: MetricKind::LegacyCounter, name, ..self }
    }

    pub(super) const fn histogram(self, name: &'static str) -> Self {
        Self { kind: MetricKind::Histogram, name, ..self }
    }

    #[must_use]
    pub const fn is_in(&self, profile: Profile) -> bool {
        matches!(profile, Profile::Full) || !matches!(self.in_default, InDefault::Nothing)
    }

    /// Whether formats with native histograms show native buckets beside the classic ones. Our own histograms have
    /// them. Those that follow another exporter have the same buckets as that exporter's.
    #[must_use]
    pub fn has_native_buckets(&self) -> bool {
        self.kind == MetricKind::Histogram && matches!(self.group, Group::Engine | Group::Exporter)
    }

    /// Replaces the labels that the area gives.
    pub(super) const fn labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    pub(super) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    pub(super) const fn by(mut self, label: &'static str, values: &'static [&'static str]) -> Self {
        self.variant = Some(Variant { label, values });
        self
    }

    pub(super) const fn in_default(self) -> Self {
        self.shown_in_default(InDefault::Everything)
    }

    pub(super) const fn shown_in_default(mut self, what: InDefault) -> Self {
        self.in_default = what;
        self
    }

    pub(super) const fn stable(mut self) -> Self {
        self.stability = Stability::Stable;
        self
    }

    pub(super) const fn experimental(mut self) -> Self {
        self.stability = Stability::Experimental;
        self
    }

    pub(super) const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    pub(super) const fn on_gateway(mut self, help: &'static str) -> Self {
        self.gateway_help = Some(help);
        self
    }

    /// Replaces the statistics that the area gives.
    pub(super) const fn feeds(mut self, feeds: &'static str) -> Self {
        self.feeds = feeds;
        self.when = &[];
        self
    }

    pub(super) const fn like(mut self, family: Id) -> Self {
        self.like = Some(family);
        self.when = &[];
        self
    }

    pub(super) const fn when(mut self, when: &'static [When]) -> Self {
        self.when = when;
        self
    }
}
