//! The control file: `key=value` lines, `#` comments. Pure: text in, [`State`] out; knows no file and no C.
//! Every GPU has defaults, so `gpus=8` alone is a complete file. An unknown key is an error, since a misspelt one
//! would let a test pass for the wrong reason.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

/// NVML's numeric return code, e.g. 9 for "driver not loaded".
pub(crate) type Code = u32;

pub(crate) const NOT_SUPPORTED: Code = 3;
pub(crate) const NO_PERMISSION: Code = 4;
pub(crate) const GPU_IS_LOST: Code = 15;
pub(crate) const RESET_REQUIRED: Code = 16;

/// The calls that `fail`, `not_supported` and `hang_call` may name, in nvml-wrapper's spelling.
const CALLS: &[&str] = &[
    "device_by_index",
    "uuid",
    "name",
    "index",
    "minor_number",
    "pci_info",
    "mig_mode",
    "utilization_rates",
    "memory_info",
    "power_usage",
    "power_management_limit",
    "enforced_power_limit",
    "total_energy_consumption",
    "temperature",
];

/// The whole library as the file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// `driver`: the kernel driver's version.
    pub(crate) driver: String,
    /// `nvml`: the library's version.
    pub(crate) nvml: String,
    /// `cuda`: e.g. 13000 for CUDA 13.0.
    pub(crate) cuda: i32,
    /// `init`: what nvmlInit returns.
    pub(crate) init: Code,
    /// `init_hang_ms`: how long nvmlInit takes.
    pub(crate) init_hang_ms: u64,
    /// `session`: what every other call returns, if not 0; an unloaded driver under a running client.
    pub(crate) session: Code,
    /// `log`: a file to which each successful init, each shutdown and each beginning hang appends a line.
    pub(crate) log: Option<PathBuf>,
    /// `gpus`: how many; `gpu.<index>.<key>` describes one.
    pub(crate) gpus: Vec<Gpu>,
}

/// One GPU. The numbers are NVML's own units, as in the key's suffix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) bus: u32,
    pub(crate) utilization_percent: u32,
    pub(crate) memory_utilization_percent: u32,
    pub(crate) memory_total_bytes: u64,
    pub(crate) memory_used_bytes: u64,
    pub(crate) memory_reserved_bytes: u64,
    pub(crate) power_mw: u32,
    pub(crate) power_limit_mw: u32,
    pub(crate) energy_mj: u64,
    pub(crate) temperature_celsius: u32,
    /// `mig=on`: MIG is enabled and utilisation is not supported; `lenient`: enabled, but utilisation answers.
    pub(crate) mig: Mig,
    /// `hang_ms`: how long `hang_call` takes; a call that is under way ends when the file no longer says so.
    pub(crate) hang_ms: u64,
    pub(crate) hang_call: String,
    /// `lost`, `reset_required`, `permission_denied`: what the handle and every reading answer, 0 for none.
    pub(crate) gone: Code,
    /// `fail=call:code,…` and `not_supported=call,…`.
    pub(crate) failures: BTreeMap<String, Code>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mig {
    Off,
    On,
    Lenient,
}

impl State {
    /// Reads a control file's text. An error names the line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut state = Self {
            driver: "580.159.03".to_owned(),
            nvml: "13.580.159.03".to_owned(),
            cuda: 13_000,
            init: 0,
            init_hang_ms: 0,
            session: 0,
            log: None,
            gpus: vec![Gpu::at(0)],
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (key, value) = line.split_once('=').ok_or_else(|| format!("no `=` in `{line}`"))?;
            state.set(key.trim(), value.trim()).map_err(|reason| format!("`{line}`: {reason}"))?;
        }
        Ok(state)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some(rest) = key.strip_prefix("gpu.") {
            let (index, key) = rest.split_once('.').ok_or("expected gpu.<index>.<key>")?;
            let index: usize = number(index)?;
            let count = self.gpus.len();
            let gpu = self.gpus.get_mut(index).ok_or_else(|| format!("only {count} GPUs; put `gpus=` first"))?;
            return gpu.set(key, value);
        }
        match key {
            "driver" => value.clone_into(&mut self.driver),
            "nvml" => value.clone_into(&mut self.nvml),
            "cuda" => self.cuda = number(value)?,
            "init" => self.init = number(value)?,
            "init_hang_ms" => self.init_hang_ms = number(value)?,
            "session" => self.session = number(value)?,
            "log" => self.log = Some(PathBuf::from(value)),
            "gpus" => self.gpus = (0..number::<u32>(value)?).map(Gpu::at).collect(),
            _ => return Err("unknown key".to_owned()),
        }
        Ok(())
    }
}

impl Gpu {
    /// An idle H200 at NVML index `index`.
    fn at(index: u32) -> Self {
        Self {
            uuid: format!("GPU-00000000-0000-4000-8000-{index:012x}"),
            name: "NVIDIA H200".to_owned(),
            bus: 0x1b + index,
            utilization_percent: 0,
            memory_utilization_percent: 0,
            memory_total_bytes: 150_754_820_096,
            memory_used_bytes: 0,
            memory_reserved_bytes: 658_505_728,
            power_mw: 75_000,
            power_limit_mw: 700_000,
            energy_mj: 1_000_000,
            temperature_celsius: 30,
            mig: Mig::Off,
            hang_ms: 0,
            hang_call: "power_usage".to_owned(),
            gone: 0,
            failures: BTreeMap::new(),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "uuid" => value.clone_into(&mut self.uuid),
            "name" => value.clone_into(&mut self.name),
            "bus" => self.bus = number(value)?,
            "utilization_percent" => self.utilization_percent = number(value)?,
            "memory_utilization_percent" => self.memory_utilization_percent = number(value)?,
            "memory_total_bytes" => self.memory_total_bytes = number(value)?,
            "memory_used_bytes" => self.memory_used_bytes = number(value)?,
            "memory_reserved_bytes" => self.memory_reserved_bytes = number(value)?,
            "power_mw" => self.power_mw = number(value)?,
            "power_limit_mw" => self.power_limit_mw = number(value)?,
            "energy_mj" => self.energy_mj = number(value)?,
            "temperature_celsius" => self.temperature_celsius = number(value)?,
            "mig" => {
                self.mig = match value {
                    "off" => Mig::Off,
                    "on" => Mig::On,
                    "lenient" => Mig::Lenient,
                    _ => return Err("expected off, on or lenient".to_owned()),
                }
            }
            "hang_ms" => self.hang_ms = number(value)?,
            "hang_call" => self.hang_call = call(value)?,
            "lost" => self.gone = flag(value, GPU_IS_LOST)?,
            "reset_required" => self.gone = flag(value, RESET_REQUIRED)?,
            "permission_denied" => self.gone = flag(value, NO_PERMISSION)?,
            "not_supported" => {
                for name in list(value) {
                    self.failures.insert(call(name)?, NOT_SUPPORTED);
                }
            }
            "fail" => {
                for pair in list(value) {
                    let (name, code) = pair.split_once(':').ok_or("expected call:code,…")?;
                    self.failures.insert(call(name)?, number(code)?);
                }
            }
            _ => return Err("unknown key".to_owned()),
        }
        Ok(())
    }

    /// `00000000:1B:00.0`, as NVML prints it.
    pub(crate) fn pci_bus_id(&self) -> String {
        format!("00000000:{:02X}:00.0", self.bus)
    }

    /// What `call` returns on this GPU before anything is written: 0 for success.
    pub(crate) fn answer(&self, call: &str) -> Code {
        if self.gone != 0 {
            return self.gone;
        }
        self.failures.get(call).copied().unwrap_or(0)
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a number that fits"))
}

fn flag(text: &str, code: Code) -> Result<Code, String> {
    match text {
        "0" => Ok(0),
        "1" => Ok(code),
        _ => Err("expected 0 or 1".to_owned()),
    }
}

fn call(name: &str) -> Result<String, String> {
    let name = name.trim();
    if CALLS.contains(&name) { Ok(name.to_owned()) } else { Err(format!("`{name}` is none of {}", CALLS.join(", "))) }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_one_idle_gpu() {
        let state = State::parse("").unwrap();
        assert_eq!(state.gpus.len(), 1);
        assert_eq!(state.gpus[0].answer("power_usage"), 0);
        assert_eq!(state.gpus[0].pci_bus_id(), "00000000:1B:00.0");
    }

    #[test]
    fn gpus_differ_in_uuid_and_bus() {
        let state = State::parse("gpus=2").unwrap();
        assert_ne!(state.gpus[0].uuid, state.gpus[1].uuid);
        assert_ne!(state.gpus[0].pci_bus_id(), state.gpus[1].pci_bus_id());
    }

    #[test]
    fn a_failure_names_its_call_and_leaves_the_others() {
        let state = State::parse("gpu.0.not_supported=temperature, power_usage\ngpu.0.fail=memory_info:999").unwrap();
        let gpu = &state.gpus[0];
        assert_eq!(gpu.answer("temperature"), NOT_SUPPORTED);
        assert_eq!(gpu.answer("power_usage"), NOT_SUPPORTED);
        assert_eq!(gpu.answer("memory_info"), 999);
        assert_eq!(gpu.answer("utilization_rates"), 0);
    }

    #[test]
    fn a_lost_gpu_answers_nothing_else() {
        let state = State::parse("gpu.0.lost=1\ngpu.0.not_supported=temperature").unwrap();
        assert_eq!(state.gpus[0].answer("temperature"), GPU_IS_LOST);
    }

    #[test]
    fn a_misspelt_line_is_refused_by_name() {
        for line in ["gpuz=2", "gpu.0.pwer=1", "gpu.7.lost=1", "gpu.0.lost=yes", "gpu.0.fail=pwr:3", "init"] {
            let message = State::parse(line).unwrap_err();
            assert!(message.contains(line), "{message}");
        }
    }
}
