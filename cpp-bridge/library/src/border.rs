//! The C functions that `trtllm_exporter/exporter.h` calls. They accept null pointers, and they catch every panic,
//! because a panic that unwinds into C++ would end the host's process.

// A C interface needs raw pointers. This is the only module of the crate with unsafe code.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use trtllm_sources::engine_settings::parse_settings;

use crate::server::{EmbeddedServer, ServerOptions};

/// `trtllm_exporter_options` of the header. New members go to the end. `size` is that of the host's header: an older header
/// lacks members, so its host is refused.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Options {
    size: usize,
    listen: *const c_char,
    telemetry_path: *const c_char,
    model: *const c_char,
    version: *const c_char,
    engine_version: *const c_char,
    stale_after_ms: u64,
    config: *const c_char,
}

/// The options behind `options`.
///
/// # Safety
/// `options` is null or points to a struct that begins with its own size in bytes, and that is an [`Options`] if that size is
/// not below an [`Options`]'.
unsafe fn checked<'a>(options: *const Options) -> Result<&'a Options, &'static str> {
    if options.is_null() {
        return Err("trtllm_exporter_start: options is null; pass a struct");
    }
    // Read through the pointer: a reference to a struct that is shorter than the type would be undefined behavior.
    // SAFETY: not null, so the caller guarantees a size at its beginning.
    let size = unsafe { (&raw const (*options).size).read() };
    if size < size_of::<Options>() {
        return Err("trtllm_exporter/exporter.h is older than libtrtllm_exporter; compile with the header that was \
                    installed with the library");
    }
    // SAFETY: the struct is as long as the type.
    Ok(unsafe { &*options })
}

/// Starts the server. Returns null on failure and writes the reason to `error`, as a C string of at most `error_size`
/// bytes.
///
/// # Safety
/// `options` is as for [`checked`], and its strings are C strings or null. `error` is null or points to
/// `error_size` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_start(
    options: *const Options,
    error: *mut c_char,
    error_size: usize,
) -> *mut EmbeddedServer {
    let started = catch_unwind(|| {
        // SAFETY: the caller guarantees the same.
        let options = unsafe { checked(options) }?;
        // SAFETY: the caller guarantees that the strings are C strings or null.
        let text = |from| unsafe { text(from) };
        EmbeddedServer::start(ServerOptions {
            listen: text(options.listen).ok_or("listen is null; set it to HOST:PORT")?,
            telemetry_path: text(options.telemetry_path).unwrap_or_else(|| "/metrics".to_owned()),
            model: text(options.model).unwrap_or_else(|| "tensorrt_llm".to_owned()),
            version: text(options.version).unwrap_or_else(|| "1".to_owned()),
            engine_version: text(options.engine_version).filter(|version| !version.is_empty()),
            stale_after: Duration::from_millis(options.stale_after_ms),
            settings: text(options.config).map(|config| parse_settings(&config)).unwrap_or_default(),
        })
    });
    match started.unwrap_or_else(|_| Err("the exporter panicked at start; please report this as a bug".to_owned())) {
        Ok(server) => Box::into_raw(Box::new(server)),
        Err(message) => {
            // SAFETY: the caller guarantees `error_size` writable bytes.
            unsafe { write_text(&message, error, error_size) };
            std::ptr::null_mut()
        }
    }
}

/// Takes the result of one poll: its records as rows of numbers, its duration, and its error message (null on success).
/// Any thread may call it.
///
/// # Safety
/// `server` was returned by [`trtllm_exporter_start`] and is not stopped, or is null. `records` points to `size`
/// readable bytes, or is null. `failure` is a C string or null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_absorb(
    server: *mut EmbeddedServer,
    records: *const u8,
    size: usize,
    took_us: u64,
    failure: *const c_char,
) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller guarantees a running server or null.
        let Some(server) = (unsafe { server.as_ref() }) else { return };
        let records = if records.is_null() || size == 0 {
            &[]
        } else {
            // SAFETY: the caller guarantees `size` readable bytes.
            unsafe { std::slice::from_raw_parts(records, size) }
        };
        // SAFETY: the caller guarantees a C string or null.
        let failure = unsafe { text(failure) };
        server.fold().absorb(records, Duration::from_micros(took_us), failure);
    }));
}

/// Writes the address that the server listens on, `HOST:PORT`, to `address`.
///
/// # Safety
/// `server` as for [`trtllm_exporter_absorb`]. `address` is null or points to `size` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_address(
    server: *const EmbeddedServer,
    address: *mut c_char,
    size: usize,
) {
    // SAFETY: the caller guarantees a running server or null.
    let text = unsafe { server.as_ref() }.map_or("", |server| server.address.as_str());
    // SAFETY: the caller guarantees `size` writable bytes.
    unsafe { write_text(text, address, size) };
}

/// Returns the file descriptor of the listening socket, or -1. The child of a fork must close it, because otherwise the
/// port stays in use after the parent stops.
///
/// # Safety
/// `server` as for [`trtllm_exporter_absorb`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_listener(server: *const EmbeddedServer) -> c_int {
    // SAFETY: the caller guarantees a running server or null.
    unsafe { server.as_ref() }.map_or(-1, |server| server.listener)
}

/// Stops the server's thread and frees the server.
///
/// # Safety
/// `server` as for [`trtllm_exporter_absorb`]. The caller does not use it afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_stop(server: *mut EmbeddedServer) {
    if !server.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: `start` created it with Box::into_raw, and the caller stops it only once.
            unsafe { Box::from_raw(server) }.stop();
        }));
    }
}

/// # Safety
/// `from` is a C string or null.
unsafe fn text(from: *const c_char) -> Option<String> {
    // SAFETY: not null, so the caller guarantees a C string.
    (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// # Safety
/// `to` points to `size` writable bytes, or is null.
unsafe fn write_text(text: &str, to: *mut c_char, size: usize) {
    if to.is_null() || size == 0 {
        return;
    }
    let bytes = &text.as_bytes()[..text.len().min(size - 1)];
    // SAFETY: writes at most `size` bytes, including the final zero.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len());
        to.add(bytes.len()).write(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the memory of the size exists, so Miri or valgrind would report a reference to the whole struct.
    #[test]
    fn options_of_an_older_header_are_refused_after_nothing_but_their_size_was_read() {
        for size in [0, size_of::<usize>(), size_of::<Options>() - 1] {
            let older = Box::new(size);
            // SAFETY: points to a size that is below that of the type.
            let refused = unsafe { checked((&raw const *older).cast()) };
            assert!(refused.is_err_and(|why| why.contains("older than libtrtllm_exporter")), "{size}");
        }
        // SAFETY: null is allowed.
        assert!(unsafe { checked(std::ptr::null()) }.is_err_and(|why| why.contains("null")));
    }
}
