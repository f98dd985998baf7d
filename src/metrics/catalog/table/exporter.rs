//! The exporter itself and its process.

use super::super::id::{Id, families};
use super::super::metric::{Area, Group, Metric, Stability};

const EXPORTER: Area = Area::new(Group::Exporter, Stability::Stable, &[]);
const SOURCE: Area = Area::new(Group::Exporter, Stability::Stable, &["model", "source", "version"]);
const PROCESS: Area = Area::new(Group::Exporter, Stability::Inherited, &[]);

families! {
    first: super::mig::END;

    BuildInfo = EXPORTER.gauge("trtllm_exporter_build_info").labels(&["rustversion", "version"])
        .help("Version of this exporter and the compiler it was built with.")
        .origin("the build");
    SourceUp = SOURCE.gauge("trtllm_exporter_source_up")
        .help("Whether the last poll of the engine's source succeeded.")
        .origin("the poll driver");
    Polls = SOURCE.counter("trtllm_exporter_polls_total")
        .help("Polls of the engine's source.")
        .origin("the poll driver");
    PollErrors = SOURCE.counter("trtllm_exporter_poll_errors_total")
        .by("kind", &["connect", "timeout", "http_status", "not_json", "truncated", "too_large", "io", "engine"])
        .help("Polls of the engine's source that failed, by kind.")
        .origin("the poll driver");
    PollDuration = SOURCE.histogram("trtllm_exporter_poll_duration_seconds").unit("seconds")
        .help("Time of one poll of the engine's source in seconds.")
        .origin("the poll driver");
    LastSuccess = SOURCE.gauge("trtllm_exporter_last_success_timestamp_seconds").unit("seconds")
        .help("When a poll of the engine's source last succeeded, in seconds since 1970 UTC.")
        .origin("the poll driver");
    RecordsRejected = SOURCE.counter("trtllm_exporter_records_rejected_total")
        .by("reason", &["not_json", "not_a_record", "too_long", "truncated"])
        .help("Records of the engine's source that could not be read and were skipped, by reason.")
        .origin("the source's parser");
    IngestConnections = SOURCE.gauge("trtllm_exporter_ingest_connections")
        .help("Publishers connected to the ingest socket.")
        .origin("the socket");

    // NVML.
    NvmlUp = EXPORTER.gauge("trtllm_exporter_nvml_up")
        .help("Whether the NVIDIA Management Library is loaded and initialised.")
        .origin("nvmlInit_v2");
    NvmlState = EXPORTER.gauge("trtllm_exporter_nvml_state")
        .by("state", &["off", "starting", "up", "library_not_found", "driver_not_loaded", "version_mismatch", "no_permission", "failed", "released"])
        .help("State of the NVIDIA Management Library: 1 for the state it is in.")
        .origin("nvmlInit_v2");
    NvmlInitErrors = EXPORTER.counter("trtllm_exporter_nvml_init_errors_total")
        .help("Failed initialisations of the NVIDIA Management Library.")
        .origin("nvmlInit_v2");
    NvmlReadErrors = EXPORTER.counter("trtllm_exporter_nvml_read_errors_total").labels(&["call", "error"]).experimental()
        .help("NVML calls that failed, by call and error; a reading the GPU does not support is not an error.")
        .origin("the GPU workers");
    NvmlGpus = EXPORTER.gauge("trtllm_exporter_nvml_gpus").experimental()
        .help("GPUs seen now.")
        .origin("nvmlDeviceGetCount_v2, less those --gpu.uuid leaves out");
    NvmlGpusExpected = EXPORTER.gauge("trtllm_exporter_nvml_gpus_expected").experimental()
        .help("Most GPUs seen since the exporter started: more than the GPUs seen now means that one has vanished.")
        .origin("nvmlDeviceGetCount_v2");

    // HTTP.
    Scrapes = EXPORTER.counter("trtllm_exporter_scrapes_total")
        .help("Answered requests for the metrics page, as of its last rendering.")
        .origin("the HTTP server");
    HttpRefused = EXPORTER.counter("trtllm_exporter_http_refused_total").experimental()
        .by("reason", &["tls_handshake", "unauthorized", "rate_limited", "overloaded", "timeout", "bad_request", "web_config"])
        .help("Requests and connections that were not served, by reason.")
        .origin("the HTTP server");
    ScrapeDuration = EXPORTER.histogram("trtllm_exporter_scrape_duration_seconds").unit("seconds")
        .help("Time to answer a request for the metrics page in seconds; the first one after a change of data renders it.")
        .origin("the HTTP server");

    // The process; the names and HELP texts are those of Prometheus' own client libraries.
    ProcessCpu = PROCESS.counter("process_cpu_seconds_total").unit("seconds")
        .help("Total user and system CPU time spent in seconds.")
        .origin("/proc/self/stat");
    ProcessOpenFds = PROCESS.gauge("process_open_fds")
        .help("Number of open file descriptors.")
        .origin("/proc/self/fd");
    ProcessMaxFds = PROCESS.gauge("process_max_fds")
        .help("Maximum number of open file descriptors.")
        .origin("/proc/self/limits");
    ProcessVirtualMemory = PROCESS.gauge("process_virtual_memory_bytes").unit("bytes")
        .help("Virtual memory size in bytes.")
        .origin("/proc/self/stat");
    ProcessResidentMemory = PROCESS.gauge("process_resident_memory_bytes").unit("bytes")
        .help("Resident memory size in bytes.")
        .origin("/proc/self/stat");
    ProcessStartTime = PROCESS.gauge("process_start_time_seconds").unit("seconds")
        .help("Start time of the process since unix epoch in seconds.")
        .origin("/proc/self/stat");
    ProcessThreads = PROCESS.gauge("process_threads")
        .help("Number of OS threads in the process.")
        .origin("/proc/self/stat");
}
