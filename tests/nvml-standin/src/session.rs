//! Finds and rereads the control file, and counts the clients that have called nvmlInit. Uses no C types.
//! The file is `$NVML_STANDIN_STATE`, otherwise the library's path with `.state` appended, so several copies of the library
//! in one process have different files. Without a file there is one idle GPU.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use crate::state::{Code, Gpu, State};

const UNINITIALIZED: Code = 1;
const INVALID_ARGUMENT: Code = 2;
/// Interval at which a hung call checks whether it may return.
const HANG_STEP: Duration = Duration::from_millis(100);

/// Identifies a version of the file: device, inode, size, modification time in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

struct Loaded {
    stamp: Option<Stamp>,
    state: Arc<State>,
    /// nvmlInit is reference-counted, as in the real library.
    clients: u32,
}

static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

/// The current content of the file. Costs one `stat` if nothing changed. An invalid file is reported on stderr and makes
/// every call fail with INVALID_ARGUMENT, so that a mistake in a test is noticed.
pub(crate) fn current() -> Result<Arc<State>, Code> {
    with_loaded(|loaded| Ok(Arc::clone(&loaded.state)))
}

/// nvmlInit. The control file sets its duration and its return code.
pub(crate) fn init() -> Result<(), Code> {
    hang(|state| state.init_hang_ms);
    let state = with_loaded(|loaded| {
        if loaded.state.init == 0 {
            loaded.clients += 1;
        }
        Ok(Arc::clone(&loaded.state))
    })?;
    if state.init == 0 {
        log(&state, "init");
        Ok(())
    } else {
        clear_if_unused();
        Err(state.init)
    }
}

/// nvmlShutdown.
pub(crate) fn shutdown() -> Result<(), Code> {
    let (state, clients) = with_loaded(|loaded| {
        loaded.clients = loaded.clients.checked_sub(1).ok_or(UNINITIALIZED)?;
        Ok((Arc::clone(&loaded.state), loaded.clients))
    })?;
    let leaked = crate::symbols::leaked_objects();
    if leaked > 0 && clients == 0 {
        log(&state, &format!("leaked {leaked}"));
    }
    log(&state, "shutdown");
    clear_if_unused();
    Ok(())
}

/// The state, for a call that requires nvmlInit.
pub(crate) fn in_session() -> Result<Arc<State>, Code> {
    let state =
        with_loaded(|loaded| if loaded.clients == 0 { Err(UNINITIALIZED) } else { Ok(Arc::clone(&loaded.state)) })?;
    if state.session == 0 { Ok(state) } else { Err(state.session) }
}

/// The GPU for `call`. The control file sets whether this call hangs first, and whether it fails.
pub(crate) fn gpu(index: usize, call: &str) -> Result<Arc<Gpu>, Code> {
    let hang_ms =
        |state: &State| state.gpus.get(index).filter(|gpu| gpu.hang_call == call).map_or(0, |gpu| gpu.hang_ms);
    let state = in_session()?;
    if hang_ms(&state) > 0 {
        log(&state, &format!("hang {index} {call}"));
        hang(hang_ms);
    }
    if state.trace {
        log(&state, &format!("call {index} {call}"));
    }
    // Read the file again after a hang, because the call must return the values of the moment when it ends.
    let state = if hang_ms(&state) > 0 { in_session()? } else { state };
    let gpu = state.gpus.get(index).ok_or(INVALID_ARGUMENT)?;
    match gpu.return_code(call) {
        0 => Ok(Arc::clone(gpu)),
        code => Err(code),
    }
}

/// Sleeps for the time that the control file sets. Holds no lock, so calls on other GPUs can return meanwhile.
fn hang(hang_ms: impl Fn(&State) -> u64) {
    let began = Instant::now();
    while current().is_ok_and(|state| began.elapsed() < Duration::from_millis(hang_ms(&state))) {
        thread::sleep(HANG_STEP);
    }
}

fn with_loaded<T>(body: impl FnOnce(&mut Loaded) -> Result<T, Code>) -> Result<T, Code> {
    let mut guard = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let path = state_file();
    let stamp = path.and_then(stamp);
    let fresh = guard.as_ref().is_some_and(|loaded| loaded.stamp == stamp);
    if !fresh {
        let text = path.filter(|_| stamp.is_some()).map_or(Ok(String::new()), fs::read_to_string);
        let state = text.map_err(|error| error.to_string()).and_then(|text| State::parse(&text));
        let state = Arc::new(state.map_err(|reason| {
            let _ = writeln!(io::stderr(), "nvml-standin: {path:?}: {reason}");
            INVALID_ARGUMENT
        })?);
        let clients = guard.as_ref().map_or(0, |loaded| loaded.clients);
        *guard = Some(Loaded { stamp, state, clients });
    }
    guard.as_mut().map_or(Err(INVALID_ARGUMENT), body)
}

/// Frees the static state if no client remains. Otherwise a test that measures memory after the library is unloaded
/// would report it as a leak.
fn clear_if_unused() {
    let mut guard = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    *guard = guard.take().filter(|loaded| loaded.clients > 0);
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

fn state_file() -> Option<&'static Path> {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    PATH.get_or_init(|| env::var_os("NVML_STANDIN_STATE").map(PathBuf::from).or_else(beside_library)).as_deref()
}

/// The path of this library with `.state` appended.
fn beside_library() -> Option<PathBuf> {
    let mut path = crate::symbols::library_path()?.into_os_string();
    path.push(".state");
    Some(path.into())
}

fn log(state: &State, line: &str) {
    let Some(path) = &state.log else { return };
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
        let _ = writeln!(io::stderr(), "nvml-standin: cannot append to {path:?}: {error}");
    }
}
