//! Measures the cost of draining and folding a record. Compares it with a copy of the records in C++, and with the way
//! of Triton's backend. The three run in turns in one process. Read the ratios, because absolute times depend on the
//! machine.
//!
//! This crate cannot use the exporter's own fold, so the benchmark has a similar one: 30 gauges, 8 histograms and 8
//! counters in a struct.

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
    use trtllm_bridge::{Executor, ExecutorOptions};
    use trtllm_rows::slots::{
        inflight_batching_stats as batching, iteration_stats as slot, kv_cache_stats as kv,
        static_batching_stats as fixed,
    };
    use trtllm_rows::{Row, Slot};

    const RECORDS: u64 = 1000;
    const ROUNDS: usize = 101;

    pub(crate) fn run() {
        let yardsticks = Yardsticks::load();
        let mut fold = Fold::default();
        let (mut ours, mut drains, mut copies, mut tritons) = (vec![], vec![], vec![], vec![]);
        for seed in 0..ROUNDS {
            let engine = format!("sim:?speed=max&rate=12&iterations={RECORDS}&seed={seed}");
            copies.push(yardsticks.per_record(yardsticks.copy, &engine));
            let (drain, both) = drain_and_fold(&engine, &mut fold);
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
    fn drain_and_fold(engine: &str, fold: &mut Fold) -> (f64, f64) {
        let keep_all = ExecutorOptions { iter_stats_max_iterations: 1_000_000, request_stats_max_iterations: 0 };
        let mut executor = Executor::open(engine, &keep_all).unwrap();
        while executor.truth().unwrap().iterations < RECORDS {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (mut drained, mut records) = (Duration::ZERO, 0);
        let start = Instant::now();
        loop {
            let begin = Instant::now();
            let mut rows = executor.drain_iterations().unwrap();
            drained += begin.elapsed();
            if rows.is_empty() {
                break;
            }
            while let Some(row) = Row::next(&mut rows) {
                fold.absorb(&row);
                records += 1;
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
        cache: [i64; 4],
    }

    impl Fold {
        fn absorb(&mut self, row: &Row<'_>) {
            fn value<T: Slot + Default>(row: &Row<'_>, slot: usize) -> T {
                row.get(slot).unwrap_or_default()
            }
            let count = |slot| value::<i64>(row, slot);
            let cache = |slot| count(slot::KV_CACHE_STATS + slot);
            let batch = |slot| count(slot::INFLIGHT_BATCHING_STATS + slot);
            let static_batch = |slot| count(slot::STATIC_BATCHING_STATS + slot);
            let iter = value::<u64>(row, slot::ITER);
            let repeated = iter == self.iter;
            let active = count(slot::NUM_ACTIVE_REQUESTS);
            let (max_blocks, used_blocks) = (cache(kv::MAX_NUM_BLOCKS), cache(kv::USED_NUM_BLOCKS));
            let scheduled = batch(batching::NUM_SCHEDULED_REQUESTS);
            let context_tokens = batch(batching::NUM_CTX_TOKENS);
            self.gauges = [
                active,
                count(slot::NUM_QUEUED_REQUESTS),
                count(slot::MAX_NUM_ACTIVE_REQUESTS),
                count(slot::MAX_BATCH_SIZE_STATIC),
                count(slot::MAX_BATCH_SIZE_TUNER_RECOMMENDED),
                count(slot::MAX_BATCH_SIZE_RUNTIME),
                count(slot::MAX_NUM_TOKENS_STATIC),
                count(slot::MAX_NUM_TOKENS_TUNER_RECOMMENDED),
                count(slot::MAX_NUM_TOKENS_RUNTIME),
                max_blocks,
                cache(kv::FREE_NUM_BLOCKS),
                used_blocks,
                cache(kv::TOKENS_PER_BLOCK),
                cache(kv::REUSED_BLOCKS),
                scheduled,
                batch(batching::NUM_CONTEXT_REQUESTS),
                batch(batching::NUM_GEN_REQUESTS),
                batch(batching::NUM_PAUSED_REQUESTS),
                context_tokens,
                batch(batching::MICRO_BATCH_ID),
                static_batch(fixed::NUM_SCHEDULED_REQUESTS),
                static_batch(fixed::NUM_CTX_TOKENS),
                static_batch(fixed::NUM_GEN_TOKENS),
                static_batch(fixed::EMPTY_GEN_SLOTS),
                (active - scheduled).max(0),
                count(slot::GPU_MEM_USAGE),
                count(slot::CPU_MEM_USAGE),
                count(slot::PINNED_MEM_USAGE),
                0,
                row.text().len() as i64,
            ]
            .map(|value| value as f64);
            self.gauges[28] = used_blocks as f64 / max_blocks.max(1) as f64;
            let started = count(slot::NUM_NEW_ACTIVE_REQUESTS).max(0).cast_unsigned();
            let latency: f64 = value(row, slot::ITER_LATENCY_MS);
            if latency > 0.0 {
                self.histograms[0].observe(latency, 1);
            }
            if let Some(queued) = row.get::<f64>(slot::NEW_ACTIVE_REQUESTS_QUEUE_LATENCY_MS).filter(|_| started > 0) {
                self.histograms[1].observe(queued / started as f64, started);
            }
            let decoded = value(row, slot::INFLIGHT_BATCHING_STATS + batching::AVG_NUM_DECODED_TOKENS_PER_ITER);
            self.histograms[2].observe(scheduled as f64, 1);
            self.histograms[3].observe(context_tokens as f64, 1);
            self.histograms[4].observe(self.gauges[16], 1);
            self.histograms[5].observe(used_blocks as f64, 1);
            self.histograms[6].observe(decoded, 1);
            self.histograms[7].observe(self.gauges[1], 1);
            let blocks =
                [kv::ALLOC_TOTAL_BLOCKS, kv::ALLOC_NEW_BLOCKS, kv::REUSED_BLOCKS, kv::MISSED_BLOCKS].map(cache);
            for (index, (now, before)) in blocks.iter().zip(self.cache).enumerate() {
                self.counters[index] += u64::try_from(now.wrapping_sub(before)).unwrap_or(0);
            }
            self.cache = blocks;
            self.counters[4] += u64::from(!repeated);
            self.counters[5] += started;
            let completed = count(slot::NUM_COMPLETED_REQUESTS).max(0).cast_unsigned();
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
