//! The C functions that `trtllm_exporter/exporter.h` calls. They accept null pointers, and they catch every panic,
//! because a panic that unwinds into C++ would end the host's process. No function passes a struct: options and records
//! are JSON. `detail/abi.h` says what stays the same for all versions with the same major number.

// A C interface needs raw pointers. This is the only module of the crate with unsafe code.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::page::HostedEngine;

/// Adds an engine to the page at the address in its options. Returns null on failure and writes the reason to `error`, as a
/// C string of at most `error_size` bytes.
///
/// # Safety
/// `options` points to `length` readable bytes, or is null. `error` is null or points to `error_size` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_open(
    options: *const c_char,
    length: usize,
    error: *mut c_char,
    error_size: usize,
) -> *mut HostedEngine {
    // SAFETY: the caller guarantees `length` readable bytes or null.
    let opened = catch_unwind(|| HostedEngine::open(unsafe { bytes(options, length) }));
    match opened.unwrap_or_else(|_| Err("the exporter panicked at start; please report this as a bug".to_owned())) {
        Ok(engine) => Box::into_raw(Box::new(engine)),
        Err(message) => {
            // SAFETY: the caller guarantees `error_size` writable bytes.
            unsafe { write_text(&message, error, error_size) };
            std::ptr::null_mut()
        }
    }
}

/// Takes one line of the ingest socket's protocol, without its line feed. Returns 0 if the line is counted. Returns 1
/// if it is not a record, is longer than 1 MiB, or `engine` is null. Any thread may call it.
///
/// # Safety
/// `engine` was returned by [`trtllm_exporter_open`] and is not closed, or is null. `line` points to `length` readable
/// bytes, or is null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_publish(
    engine: *const HostedEngine,
    line: *const c_char,
    length: usize,
) -> c_int {
    let counted = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller guarantees an open engine or null, and `length` readable bytes or null.
        unsafe { engine.as_ref() }.is_some_and(|engine| engine.publish(unsafe { bytes(line, length) }).is_ok())
    }));
    c_int::from(!counted.unwrap_or(false))
}

/// Ends one poll of the engine. `took_us` is its duration in microseconds, and `failure` is the reason if it failed
/// (null on success). The page then shows the lines since the last poll. Any thread may call it.
///
/// # Safety
/// `engine` as for [`trtllm_exporter_publish`]. `failure` is a C string or null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_end_poll(
    engine: *const HostedEngine,
    took_us: u64,
    failure: *const c_char,
) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller guarantees an open engine or null.
        let Some(engine) = (unsafe { engine.as_ref() }) else { return };
        // SAFETY: not null, so the caller guarantees a C string.
        let failure = (!failure.is_null()).then(|| unsafe { CStr::from_ptr(failure) }.to_string_lossy().into_owned());
        engine.end_poll(Duration::from_micros(took_us), failure);
    }));
}

/// Writes the address that the page is served on, `HOST:PORT`, to `address`. Returns the file descriptor of the listening
/// socket, or -1. The child of a fork must close it, because otherwise the port stays in use after the parent stops.
///
/// # Safety
/// `engine` as for [`trtllm_exporter_publish`]. `address` is null or points to `size` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_address(
    engine: *const HostedEngine,
    address: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller guarantees an open engine or null.
    let (text, listener) =
        unsafe { engine.as_ref() }.map_or(("", -1), |engine| (engine.page.address.as_str(), engine.page.listener));
    // SAFETY: the caller guarantees `size` writable bytes.
    unsafe { write_text(text, address, size) };
    listener
}

/// Removes the engine from its page, and frees it. The page stops with its last engine.
///
/// # Safety
/// `engine` as for [`trtllm_exporter_publish`]. The caller does not use it afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn trtllm_exporter_close(engine: *mut HostedEngine) {
    if !engine.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: `open` created it with Box::into_raw, and the caller closes it only once.
            unsafe { Box::from_raw(engine) }.close();
        }));
    }
}

/// # Safety
/// `from` points to `length` readable bytes for as long as the result is used, or is null.
unsafe fn bytes<'a>(from: *const c_char, length: usize) -> &'a [u8] {
    if from.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees `length` readable bytes.
    unsafe { std::slice::from_raw_parts(from.cast(), length) }
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

    fn open(options: &str) -> Result<*mut HostedEngine, String> {
        let mut error = [0; 256];
        // SAFETY: both pointers are valid for their lengths.
        let engine =
            unsafe { trtllm_exporter_open(options.as_ptr().cast(), options.len(), error.as_mut_ptr(), error.len()) };
        // SAFETY: the function writes a C string.
        let error = unsafe { CStr::from_ptr(error.as_ptr()) }.to_string_lossy().into_owned();
        if engine.is_null() { Err(error) } else { Ok(engine) }
    }

    fn publish(engine: *const HostedEngine, line: &str) -> c_int {
        // SAFETY: the engine is open or null, and the line is valid for its length.
        unsafe { trtllm_exporter_publish(engine, line.as_ptr().cast(), line.len()) }
    }

    fn address(engine: *const HostedEngine) -> String {
        let mut text = [0; 64];
        // SAFETY: the engine is open or null, and the text is valid for its length.
        unsafe { trtllm_exporter_address(engine, text.as_mut_ptr(), text.len()) };
        // SAFETY: the function writes a C string.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
    }

    fn named(listen: &str, model: &str) -> String {
        format!("{{\"listen\": \"{listen}\", \"hello\": {{\"model\": \"{model}\"}}, \"key_of_a_newer_header\": [1]}}")
    }

    #[test]
    fn lines_are_counted_or_rejected_with_a_status() {
        let engine = open(&named("127.0.0.1:0", "a")).unwrap();
        assert_eq!(publish(engine, "{\"iter\": 1, \"numActiveRequests\": 1, \"memberOfANewerHeader\": {}}"), 0);
        for line in ["", "[]", "{\"hello\": {}}", &" ".repeat(2 << 20)] {
            assert_eq!(publish(engine, line), 1);
        }
        assert_eq!(publish(std::ptr::null(), "{\"iter\": 1, \"numActiveRequests\": 1}"), 1);
        // SAFETY: the engine is open, and closed once.
        unsafe { trtllm_exporter_close(engine) };
    }

    #[test]
    fn engines_with_one_address_share_its_page_until_the_last_one_is_closed() {
        let first = open(&named("127.0.0.1:0", "a")).unwrap();
        let listen = address(first);
        let taken = open(&named(&listen, "a")).unwrap_err();
        assert!(taken.contains("\"a\" version \"1\" is on the page") && taken.contains(&listen), "{taken}");
        let second = open(&named(&listen, "b")).unwrap();
        assert_eq!(address(second), listen);
        let elsewhere = open(&named("127.0.0.1:0", "a")).unwrap();
        assert_ne!(address(elsewhere), listen);
        // SAFETY: the engines are open, and closed once.
        unsafe {
            trtllm_exporter_close(first);
            trtllm_exporter_close(elsewhere);
        }
        assert!(std::net::TcpStream::connect(&listen).is_ok(), "the second engine keeps the page");
        // SAFETY: as above.
        unsafe { trtllm_exporter_close(second) };
        assert!(std::net::TcpStream::connect(&listen).is_err(), "the page stops with its last engine");
        let again = open(&named(&listen, "a")).unwrap();
        // SAFETY: as above.
        unsafe { trtllm_exporter_close(again) };
    }

    #[test]
    fn derived_names_get_the_lowest_free_version() {
        let derived = |listen: &str| {
            open(&format!("{{\"listen\": \"{listen}\", \"hello\": {{\"model\": \"m\", \"derived\": true}}}}")).unwrap()
        };
        let first = derived("127.0.0.1:0");
        let second = derived(&address(first));
        // SAFETY: the engines are open.
        let versions = [first, second].map(|engine| unsafe { &*engine }.slot.name.version.clone());
        assert_eq!(versions, ["1", "2"]);
        for engine in [first, second] {
            // SAFETY: the engines are open, and closed once.
            unsafe { trtllm_exporter_close(engine) };
        }
    }

    #[test]
    fn an_error_names_what_to_change() {
        for (options, text) in [
            ("", "not valid JSON"),
            ("{\"listen\": 7}", "not valid JSON"),
            ("{}", "cannot listen on \"\""),
            ("{\"listen\": \"127.0.0.1:0\", \"telemetry_path\": \"metrics\"}", "telemetry path \"metrics\""),
        ] {
            let error = open(options).unwrap_err();
            assert!(error.contains(text), "{options}: {error}");
        }
    }
}
