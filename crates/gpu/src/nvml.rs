//! Loads and initialises NVML, and classifies its errors. Knows no single GPU, and no thread except the one that
//! initialises NVML.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::raw;
use super::threads::{self, ThreadHandle};
use trtllm_records::gpu::{GpuState, NvmlState};

/// Where drivers install the library: the loader's paths, distributions, GKE, the GPU operator, WSL.
const LIBRARIES: &[&str] = &[
    "libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
];

/// Maximum number of GPUs. Each has its own thread. No machine has that many GPUs.
const MOST_GPUS: u32 = 256;
/// Stack of the thread that initialises NVML. It is larger than a worker's, because initialisation runs driver code whose use
/// of the stack is unmeasured.
const INIT_STACK: usize = 1 << 20;

/// Why [`start`](super::start) failed. The text names the flag and what to do.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    #[error("--gpu required: {0}; or use --gpu auto")]
    Required(#[source] NvmlUnavailable),
    #[error("--gpu: cannot start a thread ({0}); raise the process limit or use --gpu off")]
    Thread(#[source] io::Error),
}

/// Why NVML is unavailable. The text says what an operator can do.
#[derive(Debug, thiserror::Error)]
pub enum NvmlUnavailable {
    #[error(
        "cannot load the NVML library ({cause}); install the NVIDIA driver, mount its libnvidia-ml.so.1, or name the \
         file with --gpu.library"
    )]
    LibraryNotFound { cause: String },
    #[error("{library}: the NVIDIA driver is not loaded; load it (modprobe nvidia)")]
    DriverNotLoaded { library: String },
    #[error(
        "{library}: version differs from the loaded NVIDIA driver; finish the driver update (restart the container or \
         the machine), or name the matching file with --gpu.library"
    )]
    VersionMismatch { library: String },
    #[error(
        "{library}: no permission to use the NVIDIA driver; give this process access to /dev/nvidiactl and /dev/nvidia*"
    )]
    NoPermission { library: String },
    #[error("{library}: no GPU found; give this process a GPU (in a container: NVIDIA_VISIBLE_DEVICES)")]
    NoGpu { library: String },
    #[error(
        "{library}: NVML initialisation failed ({source}); check the output of nvidia-smi; if it works on the host, recreate \
         this container"
    )]
    Failed { library: String, source: NvmlError },
    #[error("NVML initialisation did not finish within {0:?}; check whether nvidia-smi hangs too")]
    Stalled(Duration),
    #[error("cannot start a thread for NVML ({0}); raise the process limit")]
    Thread(#[source] io::Error),
}

impl NvmlUnavailable {
    pub(super) fn state(&self) -> NvmlState {
        match self {
            Self::LibraryNotFound { .. } => NvmlState::LibraryNotFound,
            Self::DriverNotLoaded { .. } => NvmlState::DriverNotLoaded,
            Self::VersionMismatch { .. } => NvmlState::VersionMismatch,
            Self::NoPermission { .. } => NvmlState::NoPermission,
            Self::NoGpu { .. } | Self::Failed { .. } | Self::Stalled(_) | Self::Thread(_) => NvmlState::Failed,
        }
    }

    fn from_error(library: &str, source: NvmlError) -> Self {
        let library = library.to_owned();
        match source {
            NvmlError::LibloadingError(cause) => Self::LibraryNotFound { cause: cause.to_string() },
            NvmlError::DriverNotLoaded => Self::DriverNotLoaded { library },
            NvmlError::LibRmVersionMismatch => Self::VersionMismatch { library },
            NvmlError::NoPermission => Self::NoPermission { library },
            // nvmlInit returns this if every GPU is gone (nvidia-smi: "No devices were found").
            NvmlError::NotFound => Self::NoGpu { library },
            _ => Self::Failed { library, source },
        }
    }
}

/// An initialised NVML. Dropping it shuts NVML down. It is kept in an `Arc`, because it is too large for a small stack.
#[derive(Debug)]
pub(super) struct Session {
    /// Differs from session to session, so that a late report of an earlier session is recognised.
    pub(super) number: u64,
    pub(super) nvml: Nvml,
    /// The path that was opened.
    pub(super) library: String,
    pub(super) driver_version: Option<String>,
    pub(super) nvml_version: Option<String>,
    /// e.g. `13.0`
    pub(super) cuda_version: Option<String>,
    /// Number of GPUs, including those that cannot be read. Fixed until the next initialisation.
    pub(super) gpus: u32,
}

/// Initialises NVML on a thread of its own, because nvmlInit can hang forever on some drivers (go-nvml #152), and passes
/// the result to `done` on that thread.
pub(super) fn open_in_background(
    library: Option<PathBuf>,
    done: impl FnOnce(Result<Arc<Session>, NvmlUnavailable>) + Send + 'static,
) -> Result<ThreadHandle, NvmlUnavailable> {
    let thread = threads::spawn_with_stack("gpu-init", INIT_STACK, move |_| done(open(library)));
    thread.map_err(NvmlUnavailable::Thread)
}

/// Initialises NVML and waits for the result, until `deadline` at the latest.
pub(super) fn open_within(library: Option<PathBuf>, deadline: Duration) -> Result<Arc<Session>, NvmlUnavailable> {
    let (sender, result) = mpsc::channel();
    open_in_background(library, move |session| {
        // After the deadline there is no receiver; the session is dropped here, which shuts NVML down.
        let _ = sender.send(session);
    })?;
    result.recv_timeout(deadline).unwrap_or(Err(NvmlUnavailable::Stalled(deadline)))
}

/// Uses the first library that initialises NVML. If none does, the error of a library that exists is preferred.
fn open(library: Option<PathBuf>) -> Result<Arc<Session>, NvmlUnavailable> {
    let candidates = library.map_or_else(|| LIBRARIES.iter().map(PathBuf::from).collect(), |path| vec![path]);
    let mut not_loaded: Vec<String> = Vec::new();
    let mut mismatch: Option<NvmlUnavailable> = None;
    for candidate in &candidates {
        match initialise(candidate.as_os_str(), &candidate.to_string_lossy()) {
            Ok(session) => return Ok(session),
            // The error of a file that exists but does not load is more helpful. The loader's text names the file.
            Err(NvmlUnavailable::LibraryNotFound { cause }) if candidate.exists() => not_loaded.insert(0, cause),
            Err(NvmlUnavailable::LibraryNotFound { cause }) => not_loaded.push(cause),
            // Another copy on the list may match the running driver.
            Err(error @ NvmlUnavailable::VersionMismatch { .. }) => mismatch = Some(error),
            Err(error) => return Err(error),
        }
    }
    let mut cause = not_loaded.into_iter().next().unwrap_or_default();
    if candidates.len() > 1 {
        cause.push_str(&format!("; tried {} paths", candidates.len()));
    }
    Err(mismatch.unwrap_or(NvmlUnavailable::LibraryNotFound { cause }))
}

fn initialise(library: &OsStr, name: &str) -> Result<Arc<Session>, NvmlUnavailable> {
    let unavailable = |error| NvmlUnavailable::from_error(name, error);
    // nvml-wrapper 0.13 calls nvmlShutdown in its Drop and panics without the symbol.
    if raw::lacks_shutdown(library) {
        return Err(unavailable(NvmlError::FailedToLoadSymbol("nvmlShutdown".to_owned())));
    }
    let nvml = Nvml::builder().lib_path(library).init().map_err(unavailable)?;
    let gpus = nvml.device_count().map_err(unavailable)?.min(MOST_GPUS);
    if gpus == 0 {
        return Err(NvmlUnavailable::NoGpu { library: name.to_owned() });
    }
    let driver_version = nvml.sys_driver_version().ok();
    let nvml_version = nvml.sys_nvml_version().ok();
    // NVML returns 13.0 as 13000.
    let cuda_version = nvml.sys_cuda_driver_version().ok().map(|v| format!("{}.{}", v / 1000, v % 1000 / 10));
    static SESSIONS: AtomicU64 = AtomicU64::new(0);
    let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
    let library = name.to_owned();
    Ok(Arc::new(Session { number, nvml, library, driver_version, nvml_version, cuda_version, gpus }))
}

/// What an error of one call affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorScope {
    /// Not an error: this GPU or driver does not offer the value.
    Unsupported,
    /// One value is missing in this poll.
    Call,
    /// The whole GPU is in this state.
    Gpu(GpuState),
    /// NVML is in this state and must be initialised again.
    Session(NvmlState),
}

/// The label value under which an error is counted, and what the error affects.
pub(super) fn classify(error: &NvmlError) -> (&'static str, ErrorScope) {
    match error {
        NvmlError::NotSupported => ("not_supported", ErrorScope::Unsupported),
        // This driver does not have the function yet, or no longer has it.
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => {
            ("function_not_found", ErrorScope::Unsupported)
        }
        NvmlError::GpuLost => ("gpu_is_lost", ErrorScope::Gpu(GpuState::Lost)),
        NvmlError::ResetRequired => ("reset_required", ErrorScope::Gpu(GpuState::ResetRequired)),
        NvmlError::Uninitialized => ("uninitialized", ErrorScope::Session(NvmlState::Failed)),
        NvmlError::DriverNotLoaded => ("driver_not_loaded", ErrorScope::Session(NvmlState::DriverNotLoaded)),
        NvmlError::LibRmVersionMismatch => ("lib_rm_version_mismatch", ErrorScope::Session(NvmlState::VersionMismatch)),
        NvmlError::NoPermission => ("no_permission", ErrorScope::Call),
        NvmlError::InvalidArg => ("invalid_argument", ErrorScope::Call),
        NvmlError::NotFound => ("not_found", ErrorScope::Call),
        NvmlError::InsufficientSize(_) => ("insufficient_size", ErrorScope::Call),
        NvmlError::InsufficientPower => ("insufficient_power", ErrorScope::Call),
        NvmlError::Timeout => ("timeout", ErrorScope::Call),
        NvmlError::IrqIssue => ("irq_issue", ErrorScope::Call),
        NvmlError::LibraryNotFound => ("library_not_found", ErrorScope::Call),
        NvmlError::CorruptedInfoROM => ("corrupted_inforom", ErrorScope::Call),
        NvmlError::OperatingSystem => ("operating_system", ErrorScope::Call),
        NvmlError::InUse => ("in_use", ErrorScope::Call),
        NvmlError::InsufficientMemory => ("memory", ErrorScope::Call),
        NvmlError::NoData => ("no_data", ErrorScope::Call),
        NvmlError::Utf8Error(_) => ("invalid_utf8", ErrorScope::Call),
        NvmlError::Unknown => ("unknown", ErrorScope::Call),
        // nvml-wrapper returns codes that it does not know yet as an unexpected variant.
        NvmlError::UnexpectedVariant(23) => ("insufficient_resources", ErrorScope::Call),
        NvmlError::UnexpectedVariant(25) => ("argument_version_mismatch", ErrorScope::Unsupported),
        NvmlError::UnexpectedVariant(26) => ("deprecated", ErrorScope::Unsupported),
        NvmlError::UnexpectedVariant(27) => ("not_ready", ErrorScope::Call),
        NvmlError::UnexpectedVariant(28) => ("gpu_not_found", ErrorScope::Gpu(GpuState::Lost)),
        NvmlError::UnexpectedVariant(29) => ("invalid_state", ErrorScope::Call),
        _ => ("other", ErrorScope::Call),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_call_is_not_an_error() {
        let missing = NvmlError::FailedToLoadSymbol("nvmlDeviceGetMemoryInfo_v2".to_owned());
        for error in [NvmlError::NotSupported, missing, NvmlError::UnexpectedVariant(25)] {
            assert_eq!(classify(&error).1, ErrorScope::Unsupported, "{error}");
        }
    }

    #[test]
    fn error_codes_newer_than_nvml_wrapper_have_label_values() {
        assert_eq!(classify(&NvmlError::UnexpectedVariant(28)), ("gpu_not_found", ErrorScope::Gpu(GpuState::Lost)));
        assert_eq!(classify(&NvmlError::UnexpectedVariant(777)), ("other", ErrorScope::Call));
    }

    #[test]
    fn an_unloaded_driver_ends_the_session_and_a_failed_call_does_not() {
        assert_eq!(classify(&NvmlError::DriverNotLoaded).1, ErrorScope::Session(NvmlState::DriverNotLoaded));
        assert_eq!(classify(&NvmlError::Unknown).1, ErrorScope::Call);
    }

    #[test]
    fn every_message_names_the_flag() {
        let codes = [
            NvmlError::DriverNotLoaded,
            NvmlError::LibRmVersionMismatch,
            NvmlError::NoPermission,
            NvmlError::NotFound,
            NvmlError::Unknown,
        ];
        for code in codes {
            let message = GpuError::Required(NvmlUnavailable::from_error("libnvidia-ml.so.1", code)).to_string();
            assert!(message.starts_with("--gpu required: libnvidia-ml.so.1: "), "{message}");
            assert!(message.ends_with("; or use --gpu auto"), "{message}");
        }
    }
}
