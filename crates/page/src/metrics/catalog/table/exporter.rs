//! The exporter itself and its process.

use trtllm_records::gpu::NvmlState;
use trtllm_records::{ErrorKind, PublisherRefusal, RejectReason};
use trtllm_service::supervise::Task;

use super::{Area, Group, Stability, families};
use crate::metrics::http_refusal::HttpRefusal;

const EXPORTER: Area = Area::new(Group::Exporter, Stability::Stable, &[]);
const SOURCE: Area = Area::new(Group::Exporter, Stability::Stable, &["model", "source", "version"]);
const PROCESS: Area = Area::new(Group::Exporter, Stability::Inherited, &[]);

families! {
    // prometheus-client provides the values, so no family has a closure.
    Exporter of () => ();

    BuildInfo = EXPORTER.gauge("trtllm_exporter_build_info")
        .labels(&["commit_date", "revision", "rustversion", "version"])
        .help("Version, git revision, day of the commit and compiler version of the exporter in labels; always 1.");
    ConfigReload = EXPORTER.gauge("trtllm_exporter_config_last_reload_successful").experimental()
        .help("1 if the last read of the configuration file succeeded; 0 if it failed and the previous configuration \
            is still in use.");
    SourceUp = SOURCE.gauge("trtllm_exporter_source_up").help("1 if the last poll of the engine's source succeeded.");
    RecordsMissing = SOURCE.gauge("trtllm_exporter_source_records_missing").experimental()
        .help("1 while requests end but no iteration statistics arrive.");
    UnreadKeys = SOURCE.gauge("trtllm_exporter_source_unread_keys").experimental()
        .help("Number of names in the engine's answers that this exporter does not know; above 0, the engine is newer \
            than the exporter.");
    Polls = SOURCE.counter("trtllm_exporter_polls_total").help("Polls of the engine's source.");
    PollErrors = SOURCE.counter("trtllm_exporter_poll_errors_total").by("kind", &ErrorKind::NAMES)
        .help("Failed polls of the engine's source, by kind.");
    PollDuration = SOURCE.histogram("trtllm_exporter_poll_duration_seconds").unit("seconds")
        .help("Duration of one poll of the engine's source in seconds.");
    LastSuccess = SOURCE.gauge("trtllm_exporter_last_success_timestamp_seconds").unit("seconds")
        .help("Last successful poll of the engine's source as a Unix timestamp in seconds.");
    RecordsRejected = SOURCE.counter("trtllm_exporter_records_rejected_total").by("reason", &RejectReason::NAMES)
        .help("Rejected records of the engine's source, by reason.");
    ValuesRejected = SOURCE.counter("trtllm_exporter_values_rejected_total")
        .labels(&["field", "model", "source", "version"]).experimental()
        .help("Impossible values of the engine's source that were left out while the rest of their records counts, by \
            field; fields without such values have no series.");
    IngestConnections = SOURCE.gauge("trtllm_exporter_ingest_connections")
        .help("Publishers of the engine that are connected to an ingest socket.");
    PublishersRefused = EXPORTER.counter("trtllm_exporter_publishers_refused_total").experimental()
        .by("reason", &PublisherRefusal::NAMES)
        .help("Publishers refused by ingest sockets or dropped to make room, by reason.");

    // NVML.
    NvmlUp = EXPORTER.gauge("trtllm_exporter_nvml_up")
        .help("1 if the NVIDIA Management Library is loaded and initialised.");
    NvmlState = EXPORTER.gauge("trtllm_exporter_nvml_state").by("state", &NvmlState::NAMES)
        .help("1 for the current state of the NVIDIA Management Library.");
    NvmlInitErrors = EXPORTER.counter("trtllm_exporter_nvml_init_errors_total")
        .help("Failed initialisations of the NVIDIA Management Library.");
    NvmlReadErrors = EXPORTER.counter("trtllm_exporter_nvml_read_errors_total").labels(&["call", "error"])
        .experimental()
        .help("Failed NVML calls and impossible readings, by call and error; unsupported readings are not errors.");
    NvmlGpus = EXPORTER.gauge("trtllm_exporter_nvml_gpus").experimental().help("GPUs currently visible.");
    NvmlGpusExpected = EXPORTER.gauge("trtllm_exporter_nvml_gpus_expected").experimental()
        .help("Highest number of GPUs visible since the exporter started; more than the current number means a missing \
            GPU.");

    // HTTP.
    Scrapes = EXPORTER.counter("trtllm_exporter_scrapes_total")
        .help("Scrapes of the metrics page, as of its last rendering.");
    HttpRefused = EXPORTER.counter("trtllm_exporter_http_refused_total").experimental()
        .by("reason", &HttpRefusal::NAMES).help("Refused HTTP requests and connections, by reason.");
    ScrapeDuration = EXPORTER.histogram("trtllm_exporter_scrape_duration_seconds").unit("seconds")
        .help("Duration of rendering and compressing the page of one scrape in seconds.");

    // Tasks and logs.
    TaskRestarts = EXPORTER.counter("trtllm_exporter_task_restarts_total").experimental().by("task", &Task::NAMES)
        .help("Restarts of the exporter's tasks after a panic, which is a bug, by task.");
    LogLinesDropped = EXPORTER.counter("trtllm_exporter_log_lines_dropped_total").experimental()
        .help("Log lines dropped because stderr did not take them.");

    // The flight recorder.
    RecorderItems = EXPORTER.counter("trtllm_exporter_recorder_items_total").experimental()
        .help("Records, requests and other messages of engines that the flight recorder has written to disk.");
    RecorderDropped = EXPORTER.counter("trtllm_exporter_recorder_dropped_total").experimental()
        .help("Messages of engines that the flight recorder has dropped, because its queue was full or writes to disk \
            failed.");
    RecorderErrors = EXPORTER.counter("trtllm_exporter_recorder_errors_total").experimental()
        .help("Failed attempts of the flight recorder to write to disk.");
    RecorderSize = EXPORTER.gauge("trtllm_exporter_recorder_size_bytes").unit("bytes").experimental()
        .help("Size of all files of the flight recorder in bytes.");

    // The process; the names and HELP texts are those of Prometheus' own client libraries.
    ProcessCpu = PROCESS.counter("process_cpu_seconds_total").unit("seconds")
        .help("Total user and system CPU time spent in seconds.");
    ProcessOpenFds = PROCESS.gauge("process_open_fds").help("Number of open file descriptors.");
    ProcessMaxFds = PROCESS.gauge("process_max_fds").help("Maximum number of open file descriptors.");
    ProcessVirtualMemory = PROCESS.gauge("process_virtual_memory_bytes").unit("bytes")
        .help("Virtual memory size in bytes.");
    ProcessResidentMemory = PROCESS.gauge("process_resident_memory_bytes").unit("bytes")
        .help("Resident memory size in bytes.");
    ProcessStartTime = PROCESS.gauge("process_start_time_seconds").unit("seconds")
        .help("Start time of the process since unix epoch in seconds.");
    ProcessThreads = PROCESS.gauge("process_threads").help("Number of OS threads in the process.");
}
