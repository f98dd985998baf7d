//! What engines and GPUs report, as plain structs, for almost all other crates. No I/O, no async, no metric names.
//!
//! Start with [`Message`]: a source delivers messages, and the fold takes them. Their largest structs are in the table of
//! [`statistics`], which lists each field once. [`schema`] says what the table tells of a field, [`kind`] how a value is read,
//! and `structs` what the table becomes. These words have one meaning in all crates:
//!
//! - An *iteration* is one pass of the engine's loop, with a *batch* of requests. Its statistics are a *record*
//!   ([`IterationStats`]). With attention data parallelism, each *rank* writes its own record for an iteration.
//! - A *row* is one request in one iteration ([`RequestStats`]).
//! - An *entry* has the exact times of a finished request ([`PerfMetricsEntry`]). An OTLP *span* tells the same.
//! - A *reading* is what was read at one moment: of a GPU, of trtllm-serve's own metrics, or of an orchestrator.
#![forbid(unsafe_code)]

pub mod bench_report;
pub mod bounded;
pub mod by_id;
mod engine_name;
pub mod gpu;
pub mod iteration;
pub mod kind;
pub mod lenient;
mod message;
pub mod named_numbers;
pub mod named_variants;
mod names;
mod objectives;
pub mod orchestrator;
pub mod perf_metrics;
mod pod;
mod recorder;
pub mod saturating;
pub mod schema;
pub mod server_metrics;
mod settings;
pub mod source;
pub mod statistics;
pub mod step_times;
mod structs;
pub mod timestamp;

/// Maximum number of records that the exporter keeps of an engine and shows in its API. They take about 150 KB.
pub const RECENT_RECORDS: usize = 128;

pub use bench_report::BenchReport;
pub use engine_name::{EngineName, full_name};
pub use iteration::IterationStats;
pub use message::Message;
pub use names::RequestStage;
pub use objectives::Objectives;
pub use orchestrator::OrchestratorReading;
pub use perf_metrics::PerfMetricsEntry;
pub use pod::PodTrouble;
pub use recorder::RecorderCounts;
pub use server_metrics::ServerMetrics;
pub use settings::EngineSettings;
pub use source::{
    EngineAbout, ErrorKind, ForwardedSpans, PollFailure, PublisherRefusal, RefusedPublishers, RejectCounts,
    RejectReason, SpanDrop, SpanDropCounts, SpanLoss, StartupTimes,
};
pub use statistics::{RequestStats, RequestStatsPerIteration, fields};
pub use step_times::StepTimes;
pub use timestamp::RecordTime;
