//! The C functions of `trtllm_exporter/exporter.h`. Null where a pointer is expected is an answer, not a crash; a panic
//! ends here, because unwinding into C++ would end the host.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::server::{Server, ServerOptions};

/// `trtllm_exporter_options` of the header. New members go to the end; `size` tells which the host knows.
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
}

/// Starts serving. Null: `error` says why, cut to `error_size` with its end marked.
///
/// # Safety
/// `options` points to an [`Options`] whose strings are C strings or null; `error` to `error_size` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_start(
    options: *const Options,
    error: *mut c_char,
    error_size: usize,
) -> *mut Server {
    let started = catch_unwind(|| {
        // SAFETY: the caller's promise; null is looked for.
        let options = unsafe { options.as_ref() }.ok_or("no options")?;
        if options.size < size_of::<Options>() {
            return Err("the header is older than this library; use the one installed with it".to_owned());
        }
        // SAFETY: the caller's promise about the strings.
        let text = |from| unsafe { text(from) };
        Server::start(ServerOptions {
            listen: text(options.listen).ok_or("no address to listen on")?,
            telemetry_path: text(options.telemetry_path).unwrap_or_else(|| "/metrics".to_owned()),
            model: text(options.model).unwrap_or_else(|| "tensorrt_llm".to_owned()),
            version: text(options.version).unwrap_or_else(|| "1".to_owned()),
            engine_version: text(options.engine_version).filter(|version| !version.is_empty()),
            stale_after: Duration::from_millis(options.stale_after_ms),
        })
    });
    match started.unwrap_or_else(|_| Err("the exporter failed while it started".to_owned())) {
        Ok(server) => Box::into_raw(Box::new(server)),
        Err(why) => {
            // SAFETY: the caller's promise about the buffer.
            unsafe { write_text(&why, error, error_size) };
            std::ptr::null_mut()
        }
    }
}

/// One poll: its records as rows of numbers, how long it took, and why it failed or null.
///
/// # Safety
/// `server` is of [`trtllm_exporter_start`] and not stopped; `records` points to `size` readable bytes; `failure` is a C
/// string or null. May be called from any thread.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_absorb(
    server: *mut Server,
    records: *const u8,
    size: usize,
    took_us: u64,
    failure: *const c_char,
) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's promise; null is looked for.
        let Some(server) = (unsafe { server.as_ref() }) else { return };
        let records = if records.is_null() || size == 0 {
            &[]
        } else {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts(records, size) }
        };
        // SAFETY: the caller's promise about the string.
        let failure = unsafe { text(failure) };
        server.fold().absorb(records, Duration::from_micros(took_us), failure);
    }));
}

/// The address that was bound, `HOST:PORT`.
///
/// # Safety
/// `server` as for [`trtllm_exporter_absorb`]; `address` points to `size` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_address(server: *const Server, address: *mut c_char, size: usize) {
    // SAFETY: the caller's promise; null is looked for.
    let text = unsafe { server.as_ref() }.map_or("", |server| server.address.as_str());
    // SAFETY: the caller's promise about the buffer.
    unsafe { write_text(text, address, size) };
}

/// The descriptor of the listener, which the child of a fork must close, so that the port is the parent's alone; or -1.
///
/// # Safety
/// `server` as for [`trtllm_exporter_absorb`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_listener(server: *const Server) -> c_int {
    // SAFETY: the caller's promise; null is looked for.
    unsafe { server.as_ref() }.map_or(-1, |server| server.listener)
}

/// Ends the server's thread and frees it.
///
/// # Safety
/// `server` as for [`trtllm_exporter_absorb`], or null; not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_stop(server: *mut Server) {
    if !server.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: made by Box::into_raw in start, and given back once.
            unsafe { Box::from_raw(server) }.stop();
        }));
    }
}

/// # Safety
/// A C string or null.
unsafe fn text(from: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// # Safety
/// `to` points to `size` writable bytes, or is null.
unsafe fn write_text(text: &str, to: *mut c_char, size: usize) {
    if to.is_null() || size == 0 {
        return;
    }
    let bytes = &text.as_bytes()[..text.len().min(size - 1)];
    // SAFETY: at most `size` bytes with the end mark, by the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len());
        to.add(bytes.len()).write(0);
    }
}
