//! The exporter itself and its process.

macro_rules! exporter {
    ($($before:tt)*) => { catalog! { $($before)*
    // The exporter itself.
    BuildInfo = "trtllm_exporter_build_info" Gauge Exporter BUILD
        "Version of this exporter and the compiler it was built with."
        from "the build";
    SourceUp = "trtllm_exporter_source_up" Gauge Exporter SOURCE
        "Whether the last poll of the engine's source succeeded."
        from "the poll driver";
    Polls = "trtllm_exporter_polls_total" Counter Exporter SOURCE
        "Polls of the engine's source."
        from "the poll driver";
    PollErrors = "trtllm_exporter_poll_errors_total" Counter Exporter SOURCE
        ["kind": "connect" | "timeout" | "http_status" | "not_json" | "truncated" | "too_large" | "io" | "engine"]
        "Polls of the engine's source that failed, by kind."
        from "the poll driver";
    PollDuration = "trtllm_exporter_poll_duration_seconds" Histogram Exporter SOURCE unit "seconds"
        "Time of one poll of the engine's source in seconds."
        from "the poll driver";
    LastSuccess = "trtllm_exporter_last_success_timestamp_seconds" Gauge Exporter SOURCE unit "seconds"
        "When a poll of the engine's source last succeeded, in seconds since 1970 UTC."
        from "the poll driver";
    RecordsRejected = "trtllm_exporter_records_rejected_total" Counter Exporter SOURCE
        ["reason": "not_json" | "not_a_record" | "too_long" | "truncated"]
        "Records of the engine's source that could not be read and were skipped, by reason."
        from "the source's parser";
    IngestConnections = "trtllm_exporter_ingest_connections" Gauge Exporter SOURCE
        "Publishers connected to the ingest socket."
        from "the socket";
    NvmlUp = "trtllm_exporter_nvml_up" Gauge Exporter NONE
        "Whether the NVIDIA Management Library is loaded and initialised."
        from "nvmlInit_v2";
    NvmlState = "trtllm_exporter_nvml_state" Gauge Exporter NONE
        ["state": "off" | "starting" | "up" | "library_not_found" | "driver_not_loaded" | "version_mismatch" | "no_permission" | "failed" | "released"]
        "State of the NVIDIA Management Library: 1 for the state it is in."
        from "nvmlInit_v2";
    NvmlInitErrors = "trtllm_exporter_nvml_init_errors_total" Counter Exporter NONE
        "Failed initialisations of the NVIDIA Management Library."
        from "nvmlInit_v2";
    NvmlReadErrors = "trtllm_exporter_nvml_read_errors_total" Counter Exporter CALL
        "NVML calls that failed, by call and error; a reading the GPU does not support is not an error."
        from "the GPU workers";
    NvmlGpus = "trtllm_exporter_nvml_gpus" Gauge Exporter NONE
        "GPUs seen now."
        from "nvmlDeviceGetCount_v2, less those --gpu.uuid leaves out";
    NvmlGpusExpected = "trtllm_exporter_nvml_gpus_expected" Gauge Exporter NONE
        "Most GPUs seen since the exporter started: more than the GPUs seen now means that one has vanished."
        from "nvmlDeviceGetCount_v2";
    Scrapes = "trtllm_exporter_scrapes_total" Counter Exporter NONE
        "Answered requests for the metrics page, as of its last rendering."
        from "the HTTP server";
    HttpRefused = "trtllm_exporter_http_refused_total" Counter Exporter NONE
        ["reason": "tls_handshake" | "unauthorized" | "rate_limited" | "overloaded" | "timeout" | "bad_request" | "web_config"]
        "Requests and connections that were not served, by reason."
        from "the HTTP server";
    ScrapeDuration = "trtllm_exporter_scrape_duration_seconds" Histogram Exporter NONE unit "seconds"
        "Time to answer a request for the metrics page in seconds; the first one after a change of data renders it."
        from "the HTTP server";
    ProcessCpu = "process_cpu_seconds_total" Counter Exporter NONE unit "seconds"
        "Total user and system CPU time spent in seconds."
        from "/proc/self/stat";
    ProcessOpenFds = "process_open_fds" Gauge Exporter NONE
        "Number of open file descriptors."
        from "/proc/self/fd";
    ProcessMaxFds = "process_max_fds" Gauge Exporter NONE
        "Maximum number of open file descriptors."
        from "/proc/self/limits";
    ProcessVirtualMemory = "process_virtual_memory_bytes" Gauge Exporter NONE unit "bytes"
        "Virtual memory size in bytes."
        from "/proc/self/stat";
    ProcessResidentMemory = "process_resident_memory_bytes" Gauge Exporter NONE unit "bytes"
        "Resident memory size in bytes."
        from "/proc/self/stat";
    ProcessStartTime = "process_start_time_seconds" Gauge Exporter NONE unit "seconds"
        "Start time of the process since unix epoch in seconds."
        from "/proc/self/stat";
    ProcessThreads = "process_threads" Gauge Exporter NONE
        "Number of OS threads in the process."
        from "/proc/self/stat";
    } };
}
