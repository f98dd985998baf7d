//! The exporter itself and its process.

use prometheus_client::metrics::counter::Counter;
use trtllm_records::gpu::NvmlState;
use trtllm_records::{ErrorKind, PublisherRefusal, RejectReason, SpanDrop, SpanLoss};
use trtllm_service::log;
use trtllm_service::supervise::{self, Task};

use super::{Group, InDefault, Metric, Stability, families};
use crate::build;
use crate::metrics::own::writer::OwnWriter;
use crate::metrics::own::{HttpRefusal, OwnMetrics};

const EXPORTER: Metric = Metric::area(Group::Exporter, Stability::Stable, &[]);
const SOURCE: Metric = Metric::area(Group::Exporter, Stability::Stable, &["model", "source", "version"]);
const PROCESS: Metric = Metric::area(Group::Exporter, Stability::Inherited, &[]);

families! {
    Exporter of OwnMetrics => OwnWriter<'_, '_>;

    BuildInfo(|_own, series| {
        let labels = [
            ("commit_date", build::COMMIT_DATE),
            ("revision", build::REVISION),
            ("rustversion", build::COMPILER),
            ("version", build::VERSION),
        ];
        series.all([(labels, 1_u64)])
    }) = EXPORTER.gauge("trtllm_exporter_build_info").labels(&["commit_date", "revision", "rustversion", "version"])
        .help("Version, git revision, day of the commit and compiler version of the exporter in labels; always 1.");
    ConfigReload(|own| u64::from(own.config_reload?)) = EXPORTER.gauge("trtllm_exporter_config_last_reload_successful")
        .experimental()
        .help("1 if the last read of the configuration file succeeded; 0 if it failed and the previous configuration \
            is still in use.");
    SourceUp(|own, series| series.all(own.by_source(|source| Some(u64::from(source.up))))) =
        SOURCE.gauge("trtllm_exporter_source_up").help("1 if the last poll of the engine's source succeeded.");
    RecordsMissing(|own, series| series.all(own.by_source(|source| Some(u64::from(source.records_missing))))) =
        SOURCE.gauge("trtllm_exporter_source_records_missing").experimental()
        .help("1 while requests end but no iteration statistics arrive.");
    UnreadKeys(|own, series| series.all(own.by_source(|source| Some(source.unread_keys.as_ref()?.len() as u64)))) =
        SOURCE.gauge("trtllm_exporter_source_unread_keys").experimental()
        .help("Number of names in the engine's answers that this exporter does not know; above 0, the engine is newer \
            than the exporter.");
    Polls(|own, series| series.all(own.by_source(|source| Some(source.metrics.polls.get())))) =
        SOURCE.counter("trtllm_exporter_polls_total").help("Polls of the engine's source.");
    PollErrors(
        |own, series| series.by_source_and_variant(own, |source| source.metrics.errors.each_ref().map(Counter::get))
    ) = SOURCE.counter("trtllm_exporter_poll_errors_total").by("kind", &ErrorKind::NAMES)
        .help("Failed polls of the engine's source, by kind.");
    PollDuration(|own, series| series.metrics(own.by_source(|source| Some(source.metrics.poll_duration.clone())))) =
        SOURCE.histogram("trtllm_exporter_poll_duration_seconds").shown_in_default(InDefault::Nothing).unit("seconds")
        .help("Duration of one poll of the engine's source in seconds.");
    LastSuccess(|own, series| series.all(own.by_source(|source| Some(source.last_success_us? as f64 / 1e6)))) =
        SOURCE.gauge("trtllm_exporter_last_success_timestamp_seconds").unit("seconds")
        .help("Last successful poll of the engine's source as a Unix timestamp in seconds.");
    RecordsRejected(
        |own, series| series.by_source_and_variant(own, |source| source.metrics.rejected.each_ref().map(Counter::get))
    ) = SOURCE.counter("trtllm_exporter_records_rejected_total").by("reason", &RejectReason::NAMES)
        .help("Rejected records of the engine's source, by reason.");
    ValuesRejected(|own, series| {
        // Only fields that were ever impossible have a series, because there are more than a hundred fields.
        let values = own.by_source(|source| Some(source.values_rejected.clone()));
        series.all(values.flat_map(|(labels, fields)| {
            let counts: Vec<_> = fields.iter().map(|(field, count)| ((labels, [("field", *field)]), *count)).collect();
            counts
        }))
    }) = SOURCE.counter("trtllm_exporter_values_rejected_total").labels(&["field", "model", "source", "version"])
        .experimental()
        .help("Impossible values of the engine's source that were left out while the rest of their records counts, by \
            field; fields without such values have no series.");
    SpansDropped(
        |own, series| series.by_source_and_variant(own, |source| source.spans_dropped.into_iter().flatten())
    ) = SOURCE.counter("trtllm_exporter_spans_dropped_total").experimental().shown_in_default(InDefault::Nothing)
        .by("reason", &SpanDrop::NAMES).help("OTLP spans that are not of finished requests, by reason.");
    SpansForwarded(|own, series| series.all(own.by_source(|source| Some(source.spans_forwarded?.sent)))) =
        SOURCE.counter("trtllm_exporter_spans_forwarded_total").experimental().shown_in_default(InDefault::Nothing)
        .help("OTLP spans that were forwarded to the next receiver.");
    SpansLost(|own, series| {
        series.by_source_and_variant(own, |source| source.spans_forwarded.map(|spans| spans.lost).into_iter().flatten())
    }) = SOURCE.counter("trtllm_exporter_spans_forward_dropped_total").experimental()
        .shown_in_default(InDefault::Nothing).by("reason", &SpanLoss::NAMES)
        .help("OTLP spans that were not forwarded to the next receiver, by reason.");
    IngestConnections(|own, series| series.all(own.by_source(|source| source.connections))) =
        SOURCE.gauge("trtllm_exporter_ingest_connections")
        .help("Publishers of the engine that are connected to an ingest socket.");
    PublishersRefused(|own, series| series.by_variant(own.refused_publishers.counts())) =
        EXPORTER.counter("trtllm_exporter_publishers_refused_total").experimental()
        .by("reason", &PublisherRefusal::NAMES)
        .help("Publishers refused by ingest sockets or dropped to make room, by reason.");

    // NVML.
    NvmlUp(|own| u64::from(own.gpus.nvml == NvmlState::Up)) = EXPORTER.gauge("trtllm_exporter_nvml_up")
        .help("1 if the NVIDIA Management Library is loaded and initialised.");
    NvmlState(|own, series| series.by_variant(NvmlState::ALL.map(|state| u64::from(state == own.gpus.nvml)))) =
        EXPORTER.gauge("trtllm_exporter_nvml_state").by("state", &NvmlState::NAMES)
        .help("1 for the current state of the NVIDIA Management Library.");
    NvmlInitErrors(|own| own.nvml()?.init_errors) = EXPORTER.counter("trtllm_exporter_nvml_init_errors_total")
        .help("Failed initialisations of the NVIDIA Management Library.");
    NvmlReadErrors(|own, series| {
        // Any pair of call and error can appear.
        let errors = own.gpus.read_errors.iter();
        series.all(errors.map(|error| ([("call", error.call), ("error", error.error)], error.count)))
    }) = EXPORTER.counter("trtllm_exporter_nvml_read_errors_total").labels(&["call", "error"]).experimental()
        .help("Failed NVML calls, impossible readings, and failed requests to the kubelet (call pod_resources), by \
            call and error; unsupported readings are not errors.");
    NvmlGpus(|own| u64::from(own.nvml()?.visible())) =
        EXPORTER.gauge("trtllm_exporter_nvml_gpus").experimental().help("GPUs currently visible.");
    NvmlGpusExpected(|own| u64::from(own.nvml()?.expected)) = EXPORTER.gauge("trtllm_exporter_nvml_gpus_expected")
        .experimental()
        .help("Highest number of GPUs visible since the exporter started; more than the current number means a missing \
            GPU.");

    // HTTP.
    Scrapes(|own| own.http.scrapes.get()) = EXPORTER.counter("trtllm_exporter_scrapes_total")
        .help("Scrapes of the metrics page, as of its last rendering.");
    HttpRefused(|own, series| series.by_variant(own.http.refused.each_ref().map(Counter::get))) =
        EXPORTER.counter("trtllm_exporter_http_refused_total").experimental().by("reason", &HttpRefusal::NAMES)
        .help("Refused HTTP requests and connections, by reason.");
    ScrapeDuration(|own, series| series.metrics([([("", ""); 0], own.http.scrape_duration.clone())])) =
        EXPORTER.histogram("trtllm_exporter_scrape_duration_seconds").shown_in_default(InDefault::Nothing)
        .unit("seconds")
        .help("Duration of rendering and compressing the page of one scrape in seconds.");

    // Tasks and logs.
    TaskRestarts(|_own, series| series.by_variant(supervise::restarts())) =
        EXPORTER.counter("trtllm_exporter_task_restarts_total").experimental().by("task", &Task::NAMES)
        .help("Restarts of the exporter's tasks after a panic, which is a bug, by task.");
    LogLinesDropped(|_own| log::dropped_lines()) = EXPORTER.counter("trtllm_exporter_log_lines_dropped_total")
        .experimental().help("Log lines dropped because stderr did not take them.");

    // The flight recorder.
    RecorderItems(|own| own.recorder.as_ref()?.written.get()) =
        EXPORTER.counter("trtllm_exporter_recorder_items_total").experimental()
        .help("Records, requests and other messages of engines that the flight recorder has written to disk.");
    RecorderDropped(|own| own.recorder.as_ref()?.dropped.get()) =
        EXPORTER.counter("trtllm_exporter_recorder_dropped_total").experimental()
        .help("Messages of engines that the flight recorder has dropped, because its queue was full or writes to disk \
            failed.");
    RecorderErrors(|own| own.recorder.as_ref()?.errors.get()) =
        EXPORTER.counter("trtllm_exporter_recorder_errors_total").experimental()
        .help("Failed attempts of the flight recorder to write to disk.");
    RecorderSize(|own| own.recorder.as_ref()?.bytes.get()) = EXPORTER.gauge("trtllm_exporter_recorder_size_bytes")
        .unit("bytes").experimental().help("Size of all files of the flight recorder in bytes.");

    // The process; the names and HELP texts are those of Prometheus' own client libraries.
    ProcessCpu(|own| own.process.cpu_seconds?) = PROCESS.counter("process_cpu_seconds_total").unit("seconds")
        .help("Total user and system CPU time spent in seconds.");
    ProcessOpenFds(|own| own.process.open_descriptors?) = PROCESS.gauge("process_open_fds")
        .help("Number of open file descriptors.");
    ProcessMaxFds(|own| own.process.max_descriptors?) = PROCESS.gauge("process_max_fds")
        .help("Maximum number of open file descriptors.");
    ProcessVirtualMemory(|own| own.process.virtual_bytes?) = PROCESS.gauge("process_virtual_memory_bytes").unit("bytes")
        .help("Virtual memory size in bytes.");
    ProcessResidentMemory(|own| own.process.resident_bytes?) = PROCESS.gauge("process_resident_memory_bytes")
        .unit("bytes").help("Resident memory size in bytes.");
    ProcessStartTime(|own| own.process.start?) = PROCESS.gauge("process_start_time_seconds").unit("seconds")
        .help("Start time of the process since unix epoch in seconds.");
    ProcessThreads(|own| own.process.threads?) = PROCESS.gauge("process_threads")
        .help("Number of OS threads in the process.");
}
