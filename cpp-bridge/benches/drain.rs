//! Measures the cost of draining and folding a record. Compares it with a copy of the records in C++, and with the way
//! of Triton's backend. The three run in turns in one process. Read the ratios, because absolute times depend on the
//! machine.
//!
//! This crate cannot use the exporter's own fold, so the benchmark has a similar one: 30 gauges, 8 histograms and 8
//! counters in a plain struct.

// A benchmark prints results and panics on errors. The code that it compares with consists of C functions.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, unsafe_code)]

#[cfg(not(simulated_sdk))]
fn main() {
    println!("drain: needs the simulated SDK; build without TENSORRT_LLM_ROOT");
}

#[cfg(simulated_sdk)]
fn main() {
    measure::run();
}

#[cfg(simulated_sdk)]
mod measure {
    use std::ffi::{CStr, CString, c_char, c_int, c_void};
    use std::fmt;
    use std::hint::black_box;
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, Instant};
    use trtllm_bridge::{Executor, ExecutorOptions, IterationRow, iteration_present as bit};

    const RECORDS: u64 = 1000;
    const ROUNDS: usize = 101;
    /// The exporter drains this many records per call.
    const ROWS: usize = 256;

    pub(crate) fn run() {
        let yardsticks = Yardsticks::load();
        let mut rows = vec![IterationRow::default(); ROWS];
        let mut fold = Fold::default();
        let (mut ours, mut drains, mut copies, mut tritons) = (vec![], vec![], vec![], vec![]);
        for seed in 0..ROUNDS {
            let engine = format!("sim:?speed=max&rate=12&iterations={RECORDS}&seed={seed}");
            copies.push(yardsticks.per_record(yardsticks.copy, &engine));
            let (drain, both) = drain_and_fold(&engine, &mut rows, &mut fold);
            drains.push(drain);
            ours.push(both);
            tritons.push(yardsticks.per_record(yardsticks.triton, &engine));
        }
        black_box(&fold);
        let costs = [drains, ours, copies, tritons].map(Cost::of);
        let [drain, ours, copy, triton] = &costs;
        println!("{ROUNDS} rounds of {RECORDS} records, ns per record:          median  fastest");
        println!("  drain + fold                                     {ours}");
        println!("    of which drain                                 {drain}");
        println!("  copy of the deque in C++                         {copy}");
        println!("  Triton: struct, JSON text, parse, gauges         {triton}   (JSON by {})", yardsticks.json());
        let ratios = |over: &Cost, under: &Cost| (over.median / under.median, over.fastest / under.fastest);
        let (median, fastest) = ratios(ours, copy);
        println!("drain + fold takes {median:.2} times the copy, {fastest:.2} times in the fastest (target: below 1)");
        let (median, fastest) = ratios(triton, ours);
        println!(
            "Triton's way takes {median:.0} times drain + fold, {fastest:.0} times in the fastest (target: at least 40)"
        );
    }

    /// The median and the fastest of all rounds.
    struct Cost {
        median: f64,
        fastest: f64,
    }

    impl Cost {
        fn of(mut rounds: Vec<f64>) -> Cost {
            rounds.sort_by(f64::total_cmp);
            Cost { median: rounds[rounds.len() / 2], fastest: rounds[0] }
        }
    }

    impl fmt::Display for Cost {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:9.1} {:9.1}", self.median, self.fastest)
        }
    }

    /// Nanoseconds per record, of the draining calls alone and in total. The last draining call also frees the engine's
    /// deque.
    fn drain_and_fold(engine: &str, rows: &mut [IterationRow], fold: &mut Fold) -> (f64, f64) {
        let keep_all = ExecutorOptions { iter_stats_max_iterations: 1_000_000, request_stats_max_iterations: 0 };
        let mut executor = Executor::open(engine, &keep_all).unwrap();
        while executor.truth().unwrap().iterations < RECORDS {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (mut drained, mut records) = (Duration::ZERO, 0);
        let start = Instant::now();
        loop {
            let begin = Instant::now();
            let count = executor.drain_iterations(rows).unwrap();
            drained += begin.elapsed();
            if count == 0 {
                break;
            }
            rows[..count].iter().for_each(|row| fold.absorb(row));
            records += count;
        }
        let all = start.elapsed();
        assert!(records as u64 >= RECORDS);
        (drained.as_nanos() as f64 / records as f64, all.as_nanos() as f64 / records as f64)
    }

    const BOUNDS: [f64; 18] =
        [0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 80.0, 120.0, 250.0, 500.0, 1e3, 5e3, 3e4];

    #[derive(Default)]
    struct Histogram {
        buckets: [u64; BOUNDS.len() + 1],
        sum: f64,
        count: u64,
    }

    impl Histogram {
        fn observe(&mut self, value: f64, times: u64) {
            self.buckets[BOUNDS.partition_point(|bound| *bound < value)] += times;
            self.sum += value * times as f64;
            self.count += times;
        }
    }

    #[derive(Default)]
    struct Fold {
        gauges: [f64; 30],
        histograms: [Histogram; 8],
        counters: [u64; 8],
        iter: u64,
        cache: [i32; 4],
    }

    impl Fold {
        fn absorb(&mut self, row: &IterationRow) {
            let repeated = row.iter == self.iter;
            self.gauges = [
                row.num_active_requests,
                row.num_queued_requests,
                row.max_num_active_requests,
                row.max_batch_size_static,
                row.max_batch_size_tuner_recommended,
                row.max_batch_size_runtime,
                row.max_num_tokens_static,
                row.max_num_tokens_tuner_recommended,
                row.max_num_tokens_runtime,
                row.kv_max_num_blocks,
                row.kv_free_num_blocks,
                row.kv_used_num_blocks,
                row.kv_tokens_per_block,
                row.kv_reused_blocks,
                row.inflight_num_scheduled_requests,
                row.inflight_num_context_requests,
                row.inflight_num_gen_requests,
                row.inflight_num_paused_requests,
                row.inflight_num_ctx_tokens,
                row.inflight_micro_batch_id,
                row.static_num_scheduled_requests,
                row.static_num_ctx_tokens,
                row.static_num_gen_tokens,
                row.static_empty_gen_slots,
                (row.num_active_requests - row.inflight_num_scheduled_requests).max(0),
                0,
                0,
                0,
                0,
                0,
            ]
            .map(f64::from);
            self.gauges[25] = row.gpu_mem_usage as f64;
            self.gauges[26] = row.cpu_mem_usage as f64;
            self.gauges[27] = row.pinned_mem_usage as f64;
            self.gauges[28] = f64::from(row.kv_used_num_blocks) / f64::from(row.kv_max_num_blocks.max(1));
            self.gauges[29] = row.timestamp_local_us as f64;
            let started = u64::try_from(row.num_new_active_requests).unwrap_or(0);
            if row.has(bit::ITER_LATENCY) && row.iter_latency_ms > 0.0 {
                self.histograms[0].observe(row.iter_latency_ms, 1);
            }
            if row.has(bit::QUEUE_LATENCY) && started > 0 {
                self.histograms[1].observe(row.new_active_requests_queue_latency_ms / started as f64, started);
            }
            self.histograms[2].observe(f64::from(row.inflight_num_scheduled_requests), 1);
            self.histograms[3].observe(f64::from(row.inflight_num_ctx_tokens), 1);
            self.histograms[4].observe(f64::from(row.inflight_num_gen_requests), 1);
            self.histograms[5].observe(f64::from(row.kv_used_num_blocks), 1);
            self.histograms[6].observe(f64::from(row.inflight_avg_num_decoded_tokens_per_iter), 1);
            self.histograms[7].observe(f64::from(row.num_queued_requests), 1);
            let cache =
                [row.kv_alloc_total_blocks, row.kv_alloc_new_blocks, row.kv_reused_blocks, row.kv_missed_blocks];
            for (index, (now, before)) in cache.iter().zip(self.cache).enumerate() {
                self.counters[index] += u64::try_from(now.wrapping_sub(before)).unwrap_or(0);
            }
            self.cache = cache;
            self.counters[4] += u64::from(!repeated);
            self.counters[5] += started;
            self.counters[6] += if repeated { 0 } else { u64::try_from(row.num_completed_requests).unwrap_or(0) };
            self.counters[7] += u64::try_from(row.inflight_num_ctx_tokens).unwrap_or(0);
            self.iter = row.iter;
        }
    }

    type Yardstick = unsafe extern "C" fn(*const c_char, u64, *mut usize) -> f64;

    struct Yardsticks {
        copy: Yardstick,
        triton: Yardstick,
        json: unsafe extern "C" fn() -> *const c_char,
    }

    unsafe extern "C" {
        fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    const RTLD_NOW: c_int = 2;

    impl Yardsticks {
        /// Compiles the library with the bridge's flags and loads it.
        fn load() -> Yardsticks {
            let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libyardsticks.so");
            let archive = Path::new(env!("OUT_DIR")).join("libtensorrt_llm_simulated.a");
            let compiled = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()))
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread", "-Isim/include"])
                .arg(concat!("-DTRTLLM_SIM_RELEASE=", env!("TRTLLM_SIM_RELEASE_NUMBER")))
                // The library has its own copy of the simulated SDK.
                .args(["-Wl,-Bsymbolic", "-Wl,--exclude-libs,ALL", "-o"])
                .arg(&library)
                .arg("benches/cpp/yardsticks.cc")
                .arg(archive)
                .status()
                .unwrap();
            assert!(compiled.success(), "benches/cpp/yardsticks.cc does not compile");
            let name = CString::new(library.to_str().unwrap()).unwrap();
            // SAFETY: the library was compiled above. Its only initialisers are those of the C++ standard library.
            let handle = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
            assert!(!handle.is_null(), "{} cannot be loaded", library.display());
            let symbol = |name: &CStr| {
                // SAFETY: the handle is valid, because the library stays loaded.
                let address = unsafe { dlsym(handle, name.as_ptr()) };
                assert!(!address.is_null(), "{name:?} is missing");
                address
            };
            // SAFETY: yardsticks.cc defines these functions with these types.
            unsafe {
                Yardsticks {
                    copy: std::mem::transmute::<*mut c_void, Yardstick>(symbol(c"yardstick_copy")),
                    triton: std::mem::transmute::<*mut c_void, Yardstick>(symbol(c"yardstick_triton")),
                    json: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(symbol(
                        c"yardstick_json",
                    )),
                }
            }
        }

        fn per_record(&self, yardstick: Yardstick, engine: &str) -> f64 {
            let engine = CString::new(engine).unwrap();
            let mut count = 0;
            // SAFETY: both pointers are valid during the call, which does not keep them.
            let nanoseconds = unsafe { yardstick(engine.as_ptr(), RECORDS, &raw mut count) };
            assert!(count as u64 >= RECORDS);
            nanoseconds / count as f64
        }

        fn json(&self) -> &'static str {
            // SAFETY: the function returns a string literal of the loaded library.
            let text = unsafe { CStr::from_ptr((self.json)()) };
            text.to_str().unwrap()
        }
    }
}
