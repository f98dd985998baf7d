//! A soak test: at random, GPUs are lost, hang, switch MIG on or deny access, and the driver is reloaded. Every
//! published inventory (snapshot of all GPUs) is compared with the control file of the stand-in for NVML, and no
//! resource may grow. `nvml-standin/soak.sh` makes longer runs with `TRTLLM_SOAK_SECONDS` and `TRTLLM_SOAK_SEED`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, thread};

use trtllm_gpu::{self as gpu, GpuConfig, GpuTiming};
use trtllm_records::gpu::{Gpu, GpuInventory, GpuState};

use crate::standin::Standin;

const GPUS: u32 = 8;
const INTERVAL: Duration = Duration::from_millis(50);
const CALL_DEADLINE: Duration = Duration::from_millis(500);
/// Largest age of a value when its poll ends, because a poll may take long on a busy machine.
const MAX_VALUE_AGE: Duration = Duration::from_secs(2);
/// Longest time from a change of a GPU or the driver until the published state shows the change. It includes pauses of
/// an overloaded machine that exceed the call deadline.
const MAX_REACTION: Duration = Duration::from_secs(8);
/// How long the test keeps old contents of the control file. No inventory arrives later than this.
const HISTORY: Duration = Duration::from_secs(30);

/// The condition of one GPU in the control file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Healthy,
    Mig,
    Lost,
    Hung,
    ResetRequired,
    Denied,
}

/// One version of the control file's content.
#[derive(Debug, Clone)]
struct Content {
    /// No poll can read this content before this moment, in microseconds since 1970 like the time of a poll.
    since_us: i64,
    /// No poll can read an earlier content after this moment; `i64::MAX` until the file is written.
    written_us: i64,
    /// Every number in the file is computed from this step.
    step: u64,
    driver: bool,
    conditions: [Condition; GPUS as usize],
    /// For each GPU, the last change of its condition or of the driver.
    changed: [Instant; GPUS as usize],
}

impl Content {
    fn power_mw(&self, index: u64) -> u64 {
        100_000 + self.step * 16 + index
    }

    fn used_bytes(&self, index: u64) -> u64 {
        (self.step * 16 + index) << 20
    }

    fn ecc(&self, index: u64) -> u64 {
        self.step * 16 + index
    }

    fn sm_percent(&self, index: u64) -> u64 {
        (self.step + index) % 101
    }

    fn text(&self) -> String {
        let mut text = format!("gpus={GPUS}\n");
        if !self.driver {
            text.push_str("init=9\nsession=9\n");
        }
        for (index, condition) in (0..).zip(self.conditions) {
            let mut add = |line: String| writeln!(text, "gpu.{index}.{line}").unwrap();
            add(format!("power_mw={}", self.power_mw(index)));
            add(format!("memory_used_bytes={}", self.used_bytes(index)));
            add(format!("field.3={}", self.ecc(index)));
            add(format!("ecc.7.0.1={}", self.ecc(index)));
            add(format!("energy_mj={}", self.step * 1000));
            add(format!("gpm.2={}", self.sm_percent(index)));
            match condition {
                Condition::Healthy => {}
                Condition::Mig => {
                    add("mig=on".to_owned());
                    let used = self.used_bytes(index);
                    add(format!("mig.0=MIG-{index}-{},1,0,1g.18gb,18874368000,{used},40", self.step));
                }
                Condition::Lost => add("lost=1".to_owned()),
                Condition::Hung => add("hang_ms=600000".to_owned()),
                Condition::ResetRequired => add("reset_required=1".to_owned()),
                Condition::Denied => add("fail=all:4".to_owned()),
            }
        }
        text
    }
}

/// Pseudo-random numbers (xorshift64), so that the same seed repeats the same run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64
}

/// Recent contents of the control file, and the errors found in inventories.
#[derive(Default)]
struct Checker {
    contents: VecDeque<Content>,
    /// For each GPU, the last time when its published state agreed with its condition.
    agreed: [Option<Instant>; GPUS as usize],
    energy: [f64; GPUS as usize],
    inventories: u64,
    samples: u64,
    wrong: Vec<String>,
}

impl Checker {
    fn record(&mut self, content: &Content) {
        let new = Content { since_us: now_us(), written_us: i64::MAX, ..content.clone() };
        let old = new.since_us - HISTORY.as_micros() as i64;
        while self.contents.get(1).is_some_and(|next| next.written_us < old) {
            self.contents.pop_front();
        }
        self.contents.push_back(new);
    }

    fn written(&mut self) {
        if let Some(last) = self.contents.back_mut() {
            last.written_us = now_us();
        }
    }

    fn add_error(&mut self, what: String) {
        if self.wrong.len() < 20 {
            self.wrong.push(what);
        }
    }

    fn check(&mut self, inventory: &GpuInventory) {
        self.inventories += 1;
        for gpu in &inventory.gpus {
            self.check_values(gpu);
            self.check_state(gpu);
        }
    }

    /// Every content of the control file from which this poll may have read a value.
    fn recent(&self, polled_us: i64) -> Vec<Content> {
        let oldest = polled_us - MAX_VALUE_AGE.as_micros() as i64;
        let at = self.contents.partition_point(|content| content.written_us < oldest).saturating_sub(1);
        self.contents.iter().skip(at).take_while(|content| content.since_us <= polled_us).cloned().collect()
    }

    fn check_values(&mut self, gpu: &Gpu) {
        let recent = gpu.last_poll.map(|poll| self.recent(poll.at_us)).unwrap_or_default();
        let index = u64::from(gpu.identity.index);
        let slot = gpu.identity.index as usize;
        let readings = &gpu.readings;
        let mut check = |what: &str, value: Option<f64>, expected: &dyn Fn(&Content) -> f64| {
            let Some(value) = value else { return };
            self.samples += 1;
            if !recent.iter().any(|content| (expected(content) - value).abs() < 1e-9) {
                let contents: Vec<f64> = recent.iter().map(expected).collect();
                self.wrong.truncate(19);
                self.wrong.push(format!("GPU {index} {:?}: {what} {value} is not among {contents:?}", gpu.state));
            }
        };
        check("power", readings.power_usage_watts, &|content| content.power_mw(index) as f64 / 1000.0);
        check("memory", readings.memory.used_bytes.map(|b| b as f64), &|content| content.used_bytes(index) as f64);
        check("ecc", readings.health.ecc_errors.corrected_volatile.map(|count| count as f64), &|content| {
            content.ecc(index) as f64
        });
        for part in readings.health.ecc_locations.iter().filter(|part| part.location == "sram") {
            check("ecc of sram", part.errors.uncorrected_volatile.map(|count| count as f64), &|content| {
                content.ecc(index) as f64
            });
        }
        check("sm", readings.activity.sm, &|content| content.sm_percent(index) as f64 / 100.0);
        for instance in &readings.mig {
            check("mig memory", instance.memory.used_bytes.map(|b| b as f64), &|content| {
                content.used_bytes(index) as f64
            });
        }
        let joules = readings.energy_joules.unwrap_or(0.0);
        if joules < self.energy[slot] {
            self.add_error(format!("GPU {index}: energy decreased from {} to {joules}", self.energy[slot]));
        }
        self.energy[slot] = joules;
        if gpu.state != GpuState::Ok && readings.power_usage_watts.is_some() {
            self.add_error(format!("GPU {index} is {:?} and has readings", gpu.state));
        }
    }

    fn check_state(&mut self, gpu: &Gpu) {
        let slot = gpu.identity.index as usize;
        let Some(content) = self.contents.back() else { return };
        let (condition, changed) = (content.conditions[slot], content.changed[slot]);
        let healthy = content.driver && matches!(condition, Condition::Healthy | Condition::Mig);
        if healthy == (gpu.state == GpuState::Ok) {
            self.agreed[slot] = Some(Instant::now());
        } else if self.agreed[slot].map_or(changed, |agreed| agreed.max(changed)).elapsed() > MAX_REACTION {
            self.add_error(format!("GPU {slot} is {:?} too long after {condition:?}", gpu.state));
        }
    }
}

/// Resident memory in KiB, number of threads, and number of file descriptors, which must not grow.
fn size() -> (u64, usize, usize) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let count = |folder: &str| fs::read_dir(folder).unwrap().count();
    (resident, count("/proc/self/task"), count("/proc/self/fd"))
}

fn variable(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn no_inventory_is_wrong_and_no_resource_grows_while_gpus_fail_at_random() {
    let _alone = super::alone();
    let (seconds, seed) = (variable("TRTLLM_SOAK_SECONDS", 12), variable("TRTLLM_SOAK_SEED", 1));
    let now = Instant::now();
    let mut content = Content {
        since_us: 0,
        written_us: 0,
        step: 1,
        driver: true,
        conditions: [Condition::Healthy; GPUS as usize],
        changed: [now; GPUS as usize],
    };
    let standin = Standin::new(&content.text());
    let checker = Arc::new(Mutex::new(Checker::default()));
    checker.lock().unwrap().record(&content);
    checker.lock().unwrap().written();
    let config = GpuConfig {
        library: Some(standin.library()),
        interval: INTERVAL,
        timing: GpuTiming {
            call_deadline: CALL_DEADLINE,
            init_deadline: CALL_DEADLINE,
            slow_interval: INTERVAL,
            reprobe_interval: Duration::from_millis(200),
            init_retry_min: Duration::from_millis(50),
            init_retry_max: Duration::from_millis(400),
            ..GpuTiming::default()
        },
        ..GpuConfig::default()
    };
    let sink = Arc::clone(&checker);
    let handle = gpu::start(config, move |inventory| sink.lock().unwrap().check(&inventory)).unwrap();

    // Measure the time only from here, because building the stand-in may have waited for another run of Cargo.
    let began = Instant::now();
    let (mut dice, mut sizes, mut events) = (Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), Vec::new(), 0_u64);
    while began.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_millis(100 + dice.below(400)));
        content.step += 1;
        let now = Instant::now();
        match dice.below(10) {
            0 if content.driver => {
                (content.driver, content.changed) = (false, [now; GPUS as usize]);
                events += 1;
            }
            _ if !content.driver => (content.driver, content.changed) = (true, [now; GPUS as usize]),
            1..=5 => {
                let slot = dice.below(u64::from(GPUS)) as usize;
                let conditions =
                    [Condition::Mig, Condition::Lost, Condition::Hung, Condition::ResetRequired, Condition::Denied];
                let condition = conditions[dice.below(5) as usize];
                // A failing GPU recovers, so about half of the changes are recoveries.
                content.conditions[slot] =
                    if content.conditions[slot] == Condition::Healthy { condition } else { Condition::Healthy };
                content.changed[slot] = now;
                events += 1;
            }
            _ => {}
        }
        // Record the content before writing the file, because the monitoring may read the file immediately.
        checker.lock().unwrap().record(&content);
        standin.set(&content.text());
        checker.lock().unwrap().written();
        sizes.push(size());
    }
    content.conditions = [Condition::Healthy; GPUS as usize];
    standin.set(&content.text());
    handle.stop(Duration::from_secs(30));

    let checker = checker.lock().unwrap();
    let quarter = sizes.len() / 4;
    let most =
        |part: &[(u64, usize, usize)]| part.iter().fold((0, 0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1), a.2.max(b.2)));
    let (early, late) = (most(&sizes[quarter..2 * quarter]), most(&sizes[3 * quarter..]));
    println!(
        "seed {seed}, {seconds} s: {events} events, {} inventories, {} samples compared, {} wrong; resident KiB {} then {}, \
         threads {} then {}, descriptors {} then {}",
        checker.inventories,
        checker.samples,
        checker.wrong.len(),
        early.0,
        late.0,
        early.1,
        late.1,
        early.2,
        late.2
    );
    assert!(checker.wrong.is_empty(), "{:#?}", checker.wrong);
    assert!(checker.samples > 1000, "{} samples", checker.samples);
    // The limit has a margin, because short-lived threads leave memory in the allocator. A leak in every poll exceeds
    // the margin. A leak in one of a hundred polls exceeds it in a run of some minutes.
    assert!(late.0 <= early.0 + 4096, "resident memory grew from {} to {} KiB", early.0, late.0);
    // There are one worker thread per GPU, the threads of the supervisor and the threads of this test.
    assert!(late.1 <= early.1.max(GPUS as usize + 8), "threads grew from {} to {}", early.1, late.1);
    assert!(late.2 <= early.2 + 4, "descriptors grew from {} to {}", early.2, late.2);
}
