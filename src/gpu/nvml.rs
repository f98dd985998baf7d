//! Loading and initialising NVML, and what each of its errors means for us. Knows no thread but the one that
//! initialises, and no GPU.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use std::{io, mem, thread};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::model::gpu::{GpuState, NvmlState};

/// Where drivers put the library: the loader's own paths, distributions, GKE, the GPU operator, WSL.
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

/// Initialising may run NVIDIA's own start-up code, which is unmeasured: more stack than a worker.
const INIT_STACK: usize = 1 << 20;

/// Why [`start`](super::start) failed. The text names the flag and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    #[error("--gpu required: {0}, or use --gpu auto")]
    Required(#[source] NvmlUnavailable),
    #[error("--gpu: cannot start a thread ({0}): raise the limit on processes, or use --gpu off")]
    Thread(#[source] io::Error),
}

/// Why NVML gives no readings at all, and what an operator can do about it.
#[derive(Debug, thiserror::Error)]
pub enum NvmlUnavailable {
    #[error(
        "no NVML library can be loaded ({cause}): install the NVIDIA driver or mount its libnvidia-ml.so.1, name the \
         file with --gpu.library"
    )]
    LibraryNotFound { cause: String },
    #[error("{library} is there, but the NVIDIA driver is not loaded: load it")]
    DriverNotLoaded { library: String },
    #[error(
        "{library} is of another version than the loaded NVIDIA driver: finish the driver's update (restart the \
         container or the machine), name the matching file with --gpu.library"
    )]
    VersionMismatch { library: String },
    #[error("{library} may not talk to the NVIDIA driver: give this process /dev/nvidiactl and /dev/nvidia*")]
    NoPermission { library: String },
    #[error("{library} sees no GPU: give this process one (in a container: NVIDIA_VISIBLE_DEVICES)")]
    NoGpu { library: String },
    #[error("{library} failed to initialise ({source}): see what nvidia-smi says")]
    Failed { library: String, source: NvmlError },
    #[error("NVML did not initialise within {0:?}: see whether nvidia-smi hangs too")]
    Stalled(Duration),
    #[error("cannot start a thread for NVML ({0}): raise the limit on processes")]
    Thread(#[source] io::Error),
}

impl NvmlUnavailable {
    /// The same as a state.
    pub(super) fn state(&self) -> NvmlState {
        match self {
            Self::LibraryNotFound { .. } => NvmlState::LibraryNotFound,
            Self::DriverNotLoaded { .. } => NvmlState::DriverNotLoaded,
            Self::VersionMismatch { .. } => NvmlState::VersionMismatch,
            Self::NoPermission { .. } => NvmlState::NoPermission,
            Self::NoGpu { .. } | Self::Failed { .. } | Self::Stalled(_) | Self::Thread(_) => NvmlState::Failed,
        }
    }

    fn of(library: &str, source: NvmlError) -> Self {
        let library = library.to_owned();
        match source {
            NvmlError::LibloadingError(cause) => Self::LibraryNotFound { cause: cause.to_string() },
            NvmlError::DriverNotLoaded => Self::DriverNotLoaded { library },
            NvmlError::LibRmVersionMismatch => Self::VersionMismatch { library },
            NvmlError::NoPermission => Self::NoPermission { library },
            // What nvmlInit says when every GPU is gone (nvidia-smi: "No devices were found").
            NvmlError::NotFound => Self::NoGpu { library },
            _ => Self::Failed { library, source },
        }
    }
}

/// An initialised NVML. Shut down when the last holder of `nvml` lets go.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) nvml: Arc<Nvml>,
    /// The file as it was asked for.
    pub(super) library: String,
    pub(super) driver_version: Option<String>,
    pub(super) nvml_version: Option<String>,
    /// e.g. `13.0`
    pub(super) cuda_version: Option<String>,
    /// How many GPUs NVML enumerates, those out of reach included; fixed until the next initialisation.
    pub(super) gpus: u32,
}

/// Initialises in a thread of its own, since nvmlInit can hang for good on some drivers (go-nvml #152), and hands the
/// result to `done`. A session that nobody waits for any more is shut down by that thread.
pub(super) fn open_in_background(
    library: Option<PathBuf>,
    done: impl FnOnce(Result<Session, NvmlUnavailable>) + Send + 'static,
) -> Result<(), NvmlUnavailable> {
    let thread = thread::Builder::new().name("gpu-init".to_owned()).stack_size(INIT_STACK);
    thread.spawn(move || done(open(library))).map(drop).map_err(NvmlUnavailable::Thread)
}

/// Initialises now, or says why not within `deadline`.
pub(super) fn open_within(library: Option<PathBuf>, deadline: Duration) -> Result<Session, NvmlUnavailable> {
    let (sender, result) = mpsc::channel();
    open_in_background(library, move |session| {
        let _ = sender.send(session);
    })?;
    result.recv_timeout(deadline).unwrap_or(Err(NvmlUnavailable::Stalled(deadline)))
}

/// The first library that initialises. If none does, the most telling failure: that of a library that was there.
fn open(library: Option<PathBuf>) -> Result<Session, NvmlUnavailable> {
    let candidates = library.map_or_else(|| LIBRARIES.iter().map(PathBuf::from).collect(), |path| vec![path]);
    let mut not_loaded: Vec<String> = Vec::new();
    let mut mismatch: Option<NvmlUnavailable> = None;
    for candidate in &candidates {
        match initialise(candidate.as_os_str(), &candidate.to_string_lossy()) {
            Ok(session) => return Ok(session),
            // A file that is there and does not load says more than those that are not; the loader names the file.
            Err(NvmlUnavailable::LibraryNotFound { cause }) if candidate.exists() => not_loaded.insert(0, cause),
            Err(NvmlUnavailable::LibraryNotFound { cause }) => not_loaded.push(cause),
            // Another copy on the list may be the running driver's own.
            Err(error @ NvmlUnavailable::VersionMismatch { .. }) => mismatch = Some(error),
            Err(error) => return Err(error),
        }
    }
    let mut cause = not_loaded.into_iter().next().unwrap_or_default();
    if candidates.len() > 1 {
        cause.push_str(&format!("; looked in {} places", candidates.len()));
    }
    Err(mismatch.unwrap_or(NvmlUnavailable::LibraryNotFound { cause }))
}

fn initialise(library: &OsStr, name: &str) -> Result<Session, NvmlUnavailable> {
    let unavailable = |error| NvmlUnavailable::of(name, error);
    let no_shutdown = || unavailable(NvmlError::FailedToLoadSymbol("nvmlShutdown".to_owned()));
    if not_nvml().contains(library) {
        return Err(no_shutdown());
    }
    let nvml = Nvml::builder().lib_path(library).init().map_err(unavailable)?;
    // The wrapper's Drop calls nvmlShutdown with `expect` (0.13): without the symbol it would panic. So such a library
    // is leaked, and not opened again, since that would leak again.
    if nvml.lib().nvmlShutdown.is_err() {
        mem::forget(nvml);
        not_nvml().insert(library.to_owned());
        return Err(no_shutdown());
    }
    let gpus = nvml.device_count().map_err(unavailable)?;
    if gpus == 0 {
        return Err(NvmlUnavailable::NoGpu { library: name.to_owned() });
    }
    let driver_version = nvml.sys_driver_version().ok();
    let nvml_version = nvml.sys_nvml_version().ok();
    // 13000 is 13.0.
    let cuda_version = nvml.sys_cuda_driver_version().ok().map(|v| format!("{}.{}", v / 1000, v % 1000 / 10));
    Ok(Session { nvml: Arc::new(nvml), library: name.to_owned(), driver_version, nvml_version, cuda_version, gpus })
}

/// Libraries that initialise as NVML does and cannot be shut down.
fn not_nvml() -> MutexGuard<'static, BTreeSet<OsString>> {
    static NOT_NVML: Mutex<BTreeSet<OsString>> = Mutex::new(BTreeSet::new());
    NOT_NVML.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How far an error of one call reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// This GPU or this driver has no such reading: not an error.
    Unsupported,
    /// This reading, this time.
    Call,
    /// The whole GPU.
    Gpu(GpuState),
    /// NVML itself: it must be initialised again.
    Session(NvmlState),
}

/// NVML's error as a word for a label, and its reach.
pub(super) fn meaning(error: &NvmlError) -> (&'static str, Reach) {
    match error {
        NvmlError::NotSupported => ("not_supported", Reach::Unsupported),
        // A function that this driver does not have yet, or no longer has.
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => ("function_not_found", Reach::Unsupported),
        NvmlError::GpuLost => ("gpu_is_lost", Reach::Gpu(GpuState::Lost)),
        NvmlError::ResetRequired => ("reset_required", Reach::Gpu(GpuState::ResetRequired)),
        NvmlError::Uninitialized => ("uninitialized", Reach::Session(NvmlState::Failed)),
        NvmlError::DriverNotLoaded => ("driver_not_loaded", Reach::Session(NvmlState::DriverNotLoaded)),
        NvmlError::LibRmVersionMismatch => ("lib_rm_version_mismatch", Reach::Session(NvmlState::VersionMismatch)),
        NvmlError::NoPermission => ("no_permission", Reach::Call),
        NvmlError::InvalidArg => ("invalid_argument", Reach::Call),
        NvmlError::NotFound => ("not_found", Reach::Call),
        NvmlError::InsufficientSize(_) => ("insufficient_size", Reach::Call),
        NvmlError::InsufficientPower => ("insufficient_power", Reach::Call),
        NvmlError::Timeout => ("timeout", Reach::Call),
        NvmlError::IrqIssue => ("irq_issue", Reach::Call),
        NvmlError::LibraryNotFound => ("library_not_found", Reach::Call),
        NvmlError::CorruptedInfoROM => ("corrupted_inforom", Reach::Call),
        NvmlError::OperatingSystem => ("operating_system", Reach::Call),
        NvmlError::InUse => ("in_use", Reach::Call),
        NvmlError::InsufficientMemory => ("memory", Reach::Call),
        NvmlError::NoData => ("no_data", Reach::Call),
        NvmlError::Utf8Error(_) => ("invalid_utf8", Reach::Call),
        NvmlError::Unknown => ("unknown", Reach::Call),
        // Return codes that the wrapper does not know arrive as an unexpected variant.
        NvmlError::UnexpectedVariant(23) => ("insufficient_resources", Reach::Call),
        NvmlError::UnexpectedVariant(25) => ("argument_version_mismatch", Reach::Unsupported),
        NvmlError::UnexpectedVariant(26) => ("deprecated", Reach::Unsupported),
        NvmlError::UnexpectedVariant(27) => ("not_ready", Reach::Call),
        NvmlError::UnexpectedVariant(28) => ("gpu_not_found", Reach::Gpu(GpuState::Lost)),
        NvmlError::UnexpectedVariant(29) => ("invalid_state", Reach::Call),
        _ => ("other", Reach::Call),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_reading_is_not_an_error() {
        let missing = NvmlError::FailedToLoadSymbol("nvmlDeviceGetMemoryInfo_v2".to_owned());
        for error in [NvmlError::NotSupported, missing, NvmlError::UnexpectedVariant(25)] {
            assert_eq!(meaning(&error).1, Reach::Unsupported, "{error}");
        }
    }

    #[test]
    fn codes_newer_than_the_wrapper_have_words() {
        assert_eq!(meaning(&NvmlError::UnexpectedVariant(28)), ("gpu_not_found", Reach::Gpu(GpuState::Lost)));
        assert_eq!(meaning(&NvmlError::UnexpectedVariant(777)), ("other", Reach::Call));
    }

    #[test]
    fn a_driver_that_went_away_ends_the_session_and_one_bad_reading_does_not() {
        assert_eq!(meaning(&NvmlError::DriverNotLoaded).1, Reach::Session(NvmlState::DriverNotLoaded));
        assert_eq!(meaning(&NvmlError::Unknown).1, Reach::Call);
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
            let message = GpuError::Required(NvmlUnavailable::of("libnvidia-ml.so.1", code)).to_string();
            assert!(message.starts_with("--gpu required: libnvidia-ml.so.1 "), "{message}");
            assert!(message.ends_with(", or use --gpu auto"), "{message}");
        }
    }
}
