//! GPUs that are lost, hang, are split, denied and reloaded at random: every inventory that is published is compared with
//! what the stand-in NVML was told, and nothing grows. `TRTLLM_SOAK_SECONDS` and `TRTLLM_SOAK_SEED` for longer runs, see
//! `nvml-standin/soak.sh`.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may stop at the first surprise, its helpers too

#[path = "nvml-standin/harness.rs"]
mod standin;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, thread};

use standin::Standin;
use trtllm_exporter::gpu::{self, GpuConfig, GpuTiming};
use trtllm_exporter::model::gpu::{GpuInventory, GpuSnapshot, GpuState};

const GPUS: u32 = 8;
const INTERVAL: Duration = Duration::from_millis(50);
const CALL_DEADLINE: Duration = Duration::from_millis(500);
/// A value may be this much older than the end of its poll, which takes time, more on a busy machine.
const FRESH: Duration = Duration::from_secs(2);
/// How long a GPU or driver may take to be seen gone, or to be seen back; also when it was only the machine that stood
/// still, for longer than a call may.
const NOTICED: Duration = Duration::from_secs(8);
/// A truth is forgotten when even an inventory that is heard this late can have no value of it.
const REMEMBERED: Duration = Duration::from_secs(30);

/// What one GPU is told to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Well,
    Split,
    Lost,
    Hung,
    ResetRequired,
    Denied,
}

/// What the control file says from a moment on.
#[derive(Debug, Clone)]
struct Truth {
    /// Nothing can be read of it before this moment, in microseconds since 1970 as polls are told.
    since_us: i64,
    /// Nothing of those before it can be read after this one; the last is still to be written.
    written_us: i64,
    /// Every number follows from it.
    step: u64,
    driver: bool,
    fates: [Fate; GPUS as usize],
    /// At which step each GPU's fate began, or the driver went or came.
    changed: [Instant; GPUS as usize],
}

impl Truth {
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
        for (index, fate) in (0..).zip(self.fates) {
            let mut say = |line: String| writeln!(text, "gpu.{index}.{line}").unwrap();
            say(format!("power_mw={}", self.power_mw(index)));
            say(format!("memory_used_bytes={}", self.used_bytes(index)));
            say(format!("field.3={}", self.ecc(index)));
            say(format!("ecc.7.0.1={}", self.ecc(index)));
            say(format!("energy_mj={}", self.step * 1000));
            say(format!("gpm.2={}", self.sm_percent(index)));
            match fate {
                Fate::Well => {}
                Fate::Split => {
                    say("mig=on".to_owned());
                    let used = self.used_bytes(index);
                    say(format!("mig.0=MIG-{index}-{},1,0,1g.18gb,18874368000,{used},40", self.step));
                }
                Fate::Lost => say("lost=1".to_owned()),
                Fate::Hung => say("hang_ms=600000".to_owned()),
                Fate::ResetRequired => say("reset_required=1".to_owned()),
                Fate::Denied => say("fail=all:4".to_owned()),
            }
        }
        text
    }
}

/// xorshift64: the same run for the same seed.
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

/// The truths of the recent past, and what inventories said against them.
#[derive(Default)]
struct Judge {
    truths: VecDeque<Truth>,
    /// When each GPU's state was last as its fate is.
    agreed: [Option<Instant>; GPUS as usize],
    energy: [f64; GPUS as usize],
    inventories: u64,
    samples: u64,
    wrong: Vec<String>,
}

impl Judge {
    fn tell(&mut self, truth: &Truth) {
        let told = Truth { since_us: now_us(), written_us: i64::MAX, ..truth.clone() };
        let old = told.since_us - REMEMBERED.as_micros() as i64;
        while self.truths.get(1).is_some_and(|next| next.written_us < old) {
            self.truths.pop_front();
        }
        self.truths.push_back(told);
    }

    fn written(&mut self) {
        if let Some(last) = self.truths.back_mut() {
            last.written_us = now_us();
        }
    }

    fn object(&mut self, what: String) {
        if self.wrong.len() < 20 {
            self.wrong.push(what);
        }
    }

    fn hear(&mut self, inventory: &GpuInventory) {
        self.inventories += 1;
        for gpu in &inventory.gpus {
            self.judge_values(gpu);
            self.judge_state(gpu);
        }
    }

    /// Each truth that held at any time in which a fresh value of this poll may have been read, however late it is heard.
    fn recent(&self, polled_us: i64) -> Vec<Truth> {
        let oldest = polled_us - FRESH.as_micros() as i64;
        let at = self.truths.partition_point(|truth| truth.written_us < oldest).saturating_sub(1);
        self.truths.iter().skip(at).take_while(|truth| truth.since_us <= polled_us).cloned().collect()
    }

    fn judge_values(&mut self, gpu: &GpuSnapshot) {
        let recent = gpu.last_poll.map(|poll| self.recent(poll.at_us)).unwrap_or_default();
        let index = u64::from(gpu.identity.index);
        let slot = gpu.identity.index as usize;
        let readings = &gpu.readings;
        let mut check = |what: &str, value: Option<f64>, true_value: &dyn Fn(&Truth) -> f64| {
            let Some(value) = value else { return };
            self.samples += 1;
            if !recent.iter().any(|truth| (true_value(truth) - value).abs() < 1e-9) {
                let truths: Vec<f64> = recent.iter().map(true_value).collect();
                self.wrong.truncate(19);
                self.wrong.push(format!("GPU {index} {:?}: {what} {value} is none of {truths:?}", gpu.state));
            }
        };
        check("power", readings.power_usage_watts, &|truth| truth.power_mw(index) as f64 / 1000.0);
        check("memory", readings.memory.used_bytes.map(|b| b as f64), &|truth| truth.used_bytes(index) as f64);
        check("ecc", readings.health.ecc_errors[0].map(|count| count as f64), &|truth| truth.ecc(index) as f64);
        for part in readings.health.ecc_locations.iter().filter(|part| part.location == "sram") {
            check("ecc of sram", part.errors[1].map(|count| count as f64), &|truth| truth.ecc(index) as f64);
        }
        check("sm", readings.activity.ratio[1], &|truth| truth.sm_percent(index) as f64 / 100.0);
        for instance in &readings.mig {
            check("mig memory", instance.memory.used_bytes.map(|b| b as f64), &|truth| truth.used_bytes(index) as f64);
        }
        let joules = readings.energy_joules.unwrap_or(0.0);
        if joules < self.energy[slot] {
            self.object(format!("GPU {index}: energy fell from {} to {joules}", self.energy[slot]));
        }
        self.energy[slot] = joules;
        if gpu.state != GpuState::Ok && readings.power_usage_watts.is_some() {
            self.object(format!("GPU {index} is {:?} and has readings", gpu.state));
        }
    }

    fn judge_state(&mut self, gpu: &GpuSnapshot) {
        let slot = gpu.identity.index as usize;
        let Some(truth) = self.truths.back() else { return };
        let (fate, changed) = (truth.fates[slot], truth.changed[slot]);
        let well = truth.driver && matches!(fate, Fate::Well | Fate::Split);
        if well == (gpu.state == GpuState::Ok) {
            self.agreed[slot] = Some(Instant::now());
        } else if self.agreed[slot].map_or(changed, |agreed| agreed.max(changed)).elapsed() > NOTICED {
            self.object(format!("GPU {slot} is {:?} long after {fate:?}", gpu.state));
        }
    }
}

/// What must not grow: resident KiB, threads, descriptors.
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
fn nothing_is_wrong_and_nothing_grows_whatever_happens_to_gpus() {
    let (seconds, seed) = (variable("TRTLLM_SOAK_SECONDS", 20), variable("TRTLLM_SOAK_SEED", 1));
    let began = Instant::now();
    let mut truth = Truth {
        since_us: 0,
        written_us: 0,
        step: 1,
        driver: true,
        fates: [Fate::Well; GPUS as usize],
        changed: [began; GPUS as usize],
    };
    let standin = Standin::new(&truth.text());
    let judge = Arc::new(Mutex::new(Judge::default()));
    judge.lock().unwrap().tell(&truth);
    judge.lock().unwrap().written();
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
    let hearing = Arc::clone(&judge);
    let watch = gpu::start(config, move |inventory| hearing.lock().unwrap().hear(&inventory)).unwrap();

    let (mut dice, mut sizes, mut events) = (Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), Vec::new(), 0_u64);
    while began.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_millis(100 + dice.below(400)));
        truth.step += 1;
        let now = Instant::now();
        match dice.below(10) {
            0 if truth.driver => {
                (truth.driver, truth.changed) = (false, [now; GPUS as usize]);
                events += 1;
            }
            _ if !truth.driver => (truth.driver, truth.changed) = (true, [now; GPUS as usize]),
            1..=5 => {
                let slot = dice.below(u64::from(GPUS)) as usize;
                let fates = [Fate::Split, Fate::Lost, Fate::Hung, Fate::ResetRequired, Fate::Denied];
                let fate = fates[dice.below(5) as usize];
                // Back to health as often as not.
                truth.fates[slot] = if truth.fates[slot] == Fate::Well { fate } else { Fate::Well };
                truth.changed[slot] = now;
                events += 1;
            }
            _ => {}
        }
        // Told before it is true: a reader may be faster than this thread.
        judge.lock().unwrap().tell(&truth);
        standin.set(&truth.text());
        judge.lock().unwrap().written();
        sizes.push(size());
    }
    truth.fates = [Fate::Well; GPUS as usize];
    standin.set(&truth.text());
    watch.stop(Duration::from_secs(30));

    let judge = judge.lock().unwrap();
    let quarter = sizes.len() / 4;
    let most =
        |part: &[(u64, usize, usize)]| part.iter().fold((0, 0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1), a.2.max(b.2)));
    let (early, late) = (most(&sizes[quarter..2 * quarter]), most(&sizes[3 * quarter..]));
    println!(
        "seed {seed}, {seconds} s: {events} events, {} inventories, {} samples compared, {} wrong; resident KiB {} then {}, \
         threads {} then {}, descriptors {} then {}",
        judge.inventories,
        judge.samples,
        judge.wrong.len(),
        early.0,
        late.0,
        early.1,
        late.1,
        early.2,
        late.2
    );
    assert!(judge.wrong.is_empty(), "{:#?}", judge.wrong);
    assert!(judge.samples > 1000, "{} samples", judge.samples);
    // Arenas of a dozen short-lived threads settle late. A leak of every poll shows here, of one in a hundred in a run of
    // minutes.
    assert!(late.0 <= early.0 + 4096, "resident memory grew from {} to {} KiB", early.0, late.0);
    // A worker, the one that hangs and the one that follows, for each GPU; and this test's own.
    assert!(late.1 <= early.1.max(GPUS as usize + 8), "threads grew from {} to {}", early.1, late.1);
    assert!(late.2 <= early.2 + 4, "descriptors grew from {} to {}", early.2, late.2);
}
