//! The simulated engine behind C functions. The structs are those of `../src/step.h`, which says what they mean.
// C passes raw pointers, so these functions need unsafe code. `# Safety` says what their callers guarantee.
#![allow(unsafe_code)]

mod structs;

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use structs::{Entry, Opened, Record, Row, State};
use trtllm_sim::Engine;
use trtllm_sim::config::Release;
use trtllm_sim::load::Arrival;
use trtllm_sim::options::{self, Options};
use trtllm_sim::random::mix;

/// The callbacks of a step.
#[repr(C)]
#[derive(Debug)]
pub struct Sink {
    context: *mut c_void,
    record: extern "C" fn(*mut c_void, *const Record),
    rows: extern "C" fn(*mut c_void, u64, *const Row, usize),
    entry: extern "C" fn(*mut c_void, *const Entry),
    unanswered: extern "C" fn(*mut c_void, u64),
}

/// # Safety
/// `text` has `length` bytes, `error` has `error_size`, and the other pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trtllm_sim_open(
    text: *const c_char,
    length: usize,
    release: u32,
    rows: bool,
    opened: *mut Opened,
    error: *mut c_char,
    error_size: usize,
) -> bool {
    // SAFETY: the caller guarantees valid pointers.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    match open(&String::from_utf8_lossy(text), release, rows) {
        Ok(made) => {
            // SAFETY: the caller guarantees valid pointers.
            unsafe { *opened = made };
            true
        }
        Err(_) if error_size == 0 => false,
        Err(message) => {
            let bytes = &message.as_bytes()[..message.len().min(error_size.saturating_sub(1))];
            // SAFETY: the buffer has room for the bytes and the zero after them.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), error.cast::<u8>(), bytes.len());
                *error.add(bytes.len()) = 0;
            }
            false
        }
    }
}

fn open(text: &str, release: u32, rows: bool) -> Result<Opened, String> {
    let options = Options::parse(text)?;
    let config = options.config(&options::Host {
        release: Release::Cpp { major: release / 100, minor: release % 100 },
        // TensorRT-LLM's defaults in this release.
        chunked_context: release >= 101,
        reuse: release >= 100,
        rows,
    });
    if !config.release.is_cpp() {
        return Err("sim: this scenario is one of the PyTorch backend, which the C++ Executor does not have".to_owned());
    }
    let in_cache = config.cache.blocks.saturating_mul(config.cache.tokens_per_block);
    let max_sequence = config.load.max_sequence.min(in_cache);
    let max_prompt = config.load.max_prompt.min(max_sequence);
    // The host numbers its requests from 1, so the ids of the simulated load begin far above.
    let engine = Engine::new(trtllm_sim::Config { first_id: Some(1 << 32), ..config }, options.seed);
    Ok(Opened {
        engine: Box::into_raw(Box::new(engine)),
        speed: if options.speed.is_finite() { options.speed } else { 0.0 },
        load_seconds: options.load_seconds,
        iterations: options.iterations.unwrap_or(u64::MAX),
        rank: options.rank,
        max_prompt,
        max_sequence,
        throws: match options.throws.as_deref() {
            None => 0,
            Some("standard") => 1,
            Some(_) => 2,
        },
    })
}

/// # Safety
/// `engine` was opened and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trtllm_sim_close(engine: *mut Engine) {
    // SAFETY: the caller guarantees valid pointers.
    drop(unsafe { Box::from_raw(engine) });
}

/// # Safety
/// `engine` was opened and is not closed, and `tokens` has `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trtllm_sim_submit(
    engine: *mut Engine,
    now: f64,
    id: u64,
    tokens: *const i32,
    count: usize,
    max_tokens: u32,
) {
    // SAFETY: the caller guarantees valid pointers.
    let (engine, tokens) = unsafe { (&mut *engine, std::slice::from_raw_parts(tokens, count)) };
    let mut key = 0;
    let mut keys = Vec::new();
    for block in tokens.chunks_exact(engine.config().cache.tokens_per_block as usize) {
        key = block.iter().fold(key, |key, token| mix(key ^ mix(*token as u64))).max(1);
        keys.push(key);
    }
    engine.submit(Arrival {
        at: now,
        id: Some(id),
        keys: Some(Arc::from(keys)),
        prompt: count as u32,
        output: max_tokens,
        max_new_tokens: max_tokens,
        conversation: mix(!id),
        ..Arrival::default()
    });
}

/// # Safety
/// `engine` was opened and is not closed, and the other pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trtllm_sim_step(engine: *mut Engine, now: f64, sink: *const Sink, state: *mut State) {
    // SAFETY: the caller guarantees valid pointers.
    let (engine, sink) = unsafe { (&mut *engine, &*sink) };
    let step = engine.step(now);
    for (iter, rows) in &step.rows {
        let rows: Vec<_> = rows.iter().map(Row::of).collect();
        (sink.rows)(sink.context, *iter, rows.as_ptr(), rows.len());
    }
    for record in &step.records {
        (sink.record)(sink.context, &Record::of(record));
    }
    for entry in &step.entries {
        (sink.entry)(sink.context, &Entry::of(entry));
    }
    for request in &step.unanswered {
        (sink.unanswered)(sink.context, request.id);
    }
    // SAFETY: the caller guarantees valid pointers.
    unsafe { *state = State::of(engine, step.next) };
}
