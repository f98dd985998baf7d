//! Measures the cost of draining and folding a record. Compares it with a copy of the records in C++, and with what
//! Triton's backend does. The three run in turns in one process. Compare the ratios, because absolute times depend on
//! the machine.
//!
//! This crate cannot use the exporter's own fold, so the benchmark has a similar one: 30 gauges, 8 histograms and 8
//! counters in a struct.

// A benchmark prints results and panics on errors. The code it compares with is called through C functions.
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
#[path = "../tests/engines/archive.rs"]
mod archive;

#[cfg(simulated_sdk)]
mod measure {
    use std::ffi::{CStr, CString, c_char, c_int, c_void};
    use std::fmt;
    use std::hint::black_box;
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, Instant};
    use trtllm_bridge::{Executor, ExecutorOptions, IterationStats, Known};

    const RECORDS: u64 = 1000;
    const ROUNDS: usize = 101;

    pub(crate) fn run() {
        let yardsticks = Yardsticks::load();
        let (mut records, mut fold) = (vec![IterationStats::default(); 32], Fold::default());
        let (mut ours, mut drains, mut copies, mut tritons) = (vec![], vec![], vec![], vec![]);
        for seed in 0..ROUNDS {
            let engine = format!("sim:?speed=max&rate=12&iterations={RECORDS}&seed={seed}");
            copies.push(yardsticks.per_record(yardsticks.copy, &engine));
            let (drain, both) = drain_and_fold(&engine, &mut records, &mut fold);
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
        println!(
            "drain + fold takes {median:.2} times the copy, {fastest:.2} times in the fastest (target: at most 0.4)"
        );
        let (median, fastest) = ratios(triton, ours);
        println!(
            "Triton's way takes {median:.0} times drain + fold, {fastest:.0} times in the fastest (target: at least 45)"
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

    /// Nanoseconds per record: for the draining calls alone, and in total. The last draining call also frees the
    /// engine's deque.
    fn drain_and_fold(engine: &str, slice: &mut [IterationStats], fold: &mut Fold) -> (f64, f64) {
        let keep_all = ExecutorOptions { iter_stats_max_iterations: 1_000_000, request_stats_max_iterations: 0 };
        let mut executor = Executor::open(engine, &keep_all).unwrap();
        while executor.truth().unwrap().iterations < RECORDS {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (mut drained, mut records) = (Duration::ZERO, 0);
        let start = Instant::now();
        loop {
            let begin = Instant::now();
            let count = executor.drain_iterations(slice).unwrap();
            drained += begin.elapsed();
            slice[..count].iter().for_each(|record| fold.absorb(record));
            records += count as u64;
            if count < slice.len() {
                break;
            }
        }
        let all = start.elapsed();
        assert!(records >= RECORDS);
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
            // A linear search, as in the exporter's own histogram.
            self.buckets[BOUNDS.iter().position(|bound| value <= *bound).unwrap_or(BOUNDS.len())] += times;
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
        cache: [i64; 4],
    }

    impl Fold {
        fn absorb(&mut self, record: &IterationStats) {
            fn value<T: Known<T> + Default>(member: T) -> T {
                member.known().unwrap_or_default()
            }
            let (no_cache, no_batch, no_static) = Default::default();
            let kv = if record.kv_cache_stats.present { &record.kv_cache_stats } else { &no_cache };
            let batch =
                if record.inflight_batching_stats.present { &record.inflight_batching_stats } else { &no_batch };
            let fixed = if record.static_batching_stats.present { &record.static_batching_stats } else { &no_static };
            let iter = value(record.iter).cast_unsigned();
            let repeated = iter == self.iter;
            let active = value(record.num_active_requests);
            let scheduled = value(batch.num_scheduled_requests);
            let context_tokens = value(batch.num_ctx_tokens);
            let used_blocks = value(kv.used_num_blocks);
            self.gauges = [
                active,
                value(record.num_queued_requests),
                value(record.max_num_active_requests),
                value(record.max_batch_size_static),
                value(record.max_batch_size_tuner_recommended),
                value(record.max_batch_size_runtime),
                value(record.max_num_tokens_static),
                value(record.max_num_tokens_tuner_recommended),
                value(record.max_num_tokens_runtime),
                value(kv.max_num_blocks),
                value(kv.free_num_blocks),
                used_blocks,
                value(kv.tokens_per_block),
                value(kv.reused_blocks),
                scheduled,
                value(batch.num_context_requests),
                value(batch.num_gen_requests),
                value(batch.num_paused_requests),
                context_tokens,
                value(batch.micro_batch_id),
                value(fixed.num_scheduled_requests),
                value(fixed.num_ctx_tokens),
                value(fixed.num_gen_tokens),
                value(fixed.empty_gen_slots),
                (active - scheduled).max(0),
                value(record.gpu_mem_usage),
                value(record.cpu_mem_usage),
                value(record.pinned_mem_usage),
                0,
                i64::from(record.timestamp[0]),
            ]
            .map(|value| value as f64);
            self.gauges[28] = used_blocks as f64 / value(kv.max_num_blocks).max(1) as f64;
            let started = value(record.num_new_active_requests).max(0).cast_unsigned();
            let latency = value(record.iter_latency_ms);
            if latency > 0.0 {
                self.histograms[0].observe(latency, 1);
            }
            if let Some(queued) = record.new_active_requests_queue_latency_ms.known().filter(|_| started > 0) {
                self.histograms[1].observe(queued / started as f64, started);
            }
            self.histograms[2].observe(scheduled as f64, 1);
            self.histograms[3].observe(context_tokens as f64, 1);
            self.histograms[4].observe(self.gauges[16], 1);
            self.histograms[5].observe(used_blocks as f64, 1);
            self.histograms[6].observe(value(batch.avg_num_decoded_tokens_per_iter), 1);
            self.histograms[7].observe(self.gauges[1], 1);
            let blocks = [kv.alloc_total_blocks, kv.alloc_new_blocks, kv.reused_blocks, kv.missed_blocks].map(value);
            for (index, (now, before)) in blocks.iter().zip(self.cache).enumerate() {
                self.counters[index] += u64::try_from(now.wrapping_sub(before)).unwrap_or(0);
            }
            self.cache = blocks;
            self.counters[4] += u64::from(!repeated);
            self.counters[5] += started;
            let completed = value(record.num_completed_requests).max(0).cast_unsigned();
            self.counters[6] += if repeated { 0 } else { completed };
            self.counters[7] += context_tokens.max(0).cast_unsigned();
            self.iter = iter;
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
            let compiled = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()))
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread", "-Isim/include"])
                .arg(concat!("-DTRTLLM_SIM_RELEASE=", env!("TRTLLM_SIM_RELEASE_NUMBER")))
                // The library has its own copy of the simulated SDK.
                .args(["-Wl,-Bsymbolic", "-Wl,--exclude-libs,ALL", "-o"])
                .arg(&library)
                .arg("benches/cpp/yardsticks.cc")
                .args(crate::archive::simulated_sdk())
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
