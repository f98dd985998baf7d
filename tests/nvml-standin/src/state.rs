//! The format of the control file: `key=value` lines and `#` comments. This module does not open files and has no C
//! types. Every GPU has defaults, so `gpus=8` alone is a complete file. An unknown key is an error, because a misspelt
//! key could let a test pass for the wrong reason.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::defaults::{self, CALLS, IDENTITY};

/// NVML's numeric return code, e.g. 9 for "driver not loaded".
pub(crate) type Code = u32;

pub(crate) const INVALID_ARGUMENT: Code = 2;
pub(crate) const NOT_SUPPORTED: Code = 3;
pub(crate) const NO_PERMISSION: Code = 4;
pub(crate) const GPU_IS_LOST: Code = 15;
pub(crate) const RESET_REQUIRED: Code = 16;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    /// `driver`: version of the kernel driver.
    pub(crate) driver: String,
    /// `nvml`: version of the library.
    pub(crate) nvml: String,
    /// `cuda`: e.g. 13000 for CUDA 13.0.
    pub(crate) cuda: i32,
    /// `init`: the return code of nvmlInit.
    pub(crate) init: Code,
    /// `init_hang_ms`: duration of nvmlInit.
    pub(crate) init_hang_ms: u64,
    /// `session`: return code of every other call, if not 0. Simulates a driver that is unloaded while a client runs.
    pub(crate) session: Code,
    /// `log`: a file that gets a line for each successful init, each shutdown and each hang that begins.
    pub(crate) log: Option<PathBuf>,
    /// `trace=1`: also log each call on a GPU as `call <index> <call>`.
    pub(crate) trace: bool,
    /// `gpus`: number of GPUs. `gpu.<index>.<key>` sets a value of one GPU.
    pub(crate) gpus: Vec<Arc<Gpu>>,
}

/// One GPU. Numbers are in NVML's unit, which is the suffix of the key. The value `none` makes a number unsupported.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gpu {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) bus: u32,
    pub(crate) serial: String,
    pub(crate) vbios: String,
    /// The keys of [`defaults::NUMBERS`].
    numbers: BTreeMap<&'static str, u64>,
    /// `field.<id>=`, and with a scope `field.<id>/<link>=` or `field.<id>/all=`. The value `!27` is the return code 27.
    fields: BTreeMap<(u32, u32), Result<u64, Code>>,
    /// `gpm.<id>=`: the value of this GPM metric between any two samples, in NVML's unit.
    pub(crate) gpm: BTreeMap<u32, f64>,
    /// `mig.<slot>=uuid,gpu instance,compute instance,profile,total bytes,used bytes,SM percent`
    pub(crate) instances: BTreeMap<u32, MigDevice>,
    /// `processes=pid:bytes,…`, with `none` for unknown bytes.
    pub(crate) processes: Vec<(u32, Option<u64>)>,
    /// `process_utilization=pid:SM percent:microseconds,…`: utilisation samples with their timestamps.
    pub(crate) process_utilization: Vec<(u32, u32, u64)>,
    /// `ecc.<location>.<counter>.<error>=`, with NVML's numbers. Other counters are not supported.
    pub(crate) ecc: BTreeMap<(u32, u32, u32), u64>,
    /// `xids=79,48`: the codes of the Xid errors so far. A code appended at the end is a new event.
    pub(crate) xids: Vec<u64>,
    /// `fans=40,45`: speeds in percent.
    pub(crate) fans: Vec<u32>,
    /// `nvlink_down=3,4`: inactive links. The key `nvlinks` sets the number of links.
    pub(crate) nvlink_down: Vec<u32>,
    /// `nvlink_unused=5`: links that are not supported.
    pub(crate) nvlink_unused: Vec<u32>,
    /// `mig=on`: MIG is enabled and utilisation is not supported. `mig=lenient`: MIG is enabled, but the utilisation call
    /// succeeds.
    pub(crate) mig: Mig,
    /// `hang_ms`: duration of the call `hang_call`. If the file changes and no longer sets `hang_ms`, the call returns.
    pub(crate) hang_ms: u64,
    pub(crate) hang_call: String,
    /// `lost`, `reset_required`, `permission_denied`: they set the return code of every call on this GPU; otherwise 0.
    pub(crate) gone: Code,
    /// `fail=call:code,…` and `not_supported=call,…`: return codes of single calls.
    pub(crate) failures: BTreeMap<String, Code>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MigDevice {
    pub(crate) uuid: String,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
    pub(crate) profile: String,
    pub(crate) total_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) sm_percent: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mig {
    Off,
    On,
    Lenient,
}

impl State {
    /// Parses the control file. An error names the invalid line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut state = Self {
            driver: "580.159.03".to_owned(),
            nvml: "13.580.159.03".to_owned(),
            cuda: 13_000,
            init: 0,
            init_hang_ms: 0,
            session: 0,
            log: None,
            trace: false,
            gpus: vec![Arc::new(Gpu::at(0))],
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (key, value) = line.split_once('=').ok_or_else(|| format!("`{line}`: missing `=`"))?;
            state.set(key.trim(), value.trim()).map_err(|reason| format!("`{line}`: {reason}"))?;
        }
        Ok(state)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some(rest) = key.strip_prefix("gpu.") {
            let (index, key) = rest.split_once('.').ok_or("expected gpu.<index>.<key>")?;
            let index: usize = number(index)?;
            let count = self.gpus.len();
            let gpu = self
                .gpus
                .get_mut(index)
                .ok_or_else(|| format!("index out of range for {count} GPUs; set `gpus=` in an earlier line"))?;
            return Arc::make_mut(gpu).set(key, value);
        }
        match key {
            "driver" => value.clone_into(&mut self.driver),
            "nvml" => value.clone_into(&mut self.nvml),
            "cuda" => self.cuda = number(value)?,
            "init" => self.init = number(value)?,
            "init_hang_ms" => self.init_hang_ms = number(value)?,
            "session" => self.session = number(value)?,
            "trace" => self.trace = value == "1",
            "log" => self.log = Some(PathBuf::from(value)),
            "gpus" => self.gpus = (0..number::<u32>(value)?).map(|index| Arc::new(Gpu::at(index))).collect(),
            _ => return Err("unknown key".to_owned()),
        }
        Ok(())
    }
}

impl Gpu {
    /// An idle H200 at this NVML index.
    fn at(index: u32) -> Self {
        Self {
            uuid: format!("GPU-00000000-0000-4000-8000-{index:012x}"),
            name: "NVIDIA H200".to_owned(),
            bus: 0x1b + index,
            serial: format!("16512230{index:05}"),
            vbios: "96.00.BC.00.01".to_owned(),
            numbers: defaults::NUMBERS.iter().copied().collect(),
            fields: defaults::fields(),
            gpm: defaults::GPM.iter().map(|id| (*id, 0.0)).collect(),
            instances: BTreeMap::new(),
            processes: Vec::new(),
            process_utilization: Vec::new(),
            ecc: defaults::ecc(),
            xids: Vec::new(),
            fans: Vec::new(),
            nvlink_down: Vec::new(),
            nvlink_unused: Vec::new(),
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
            "serial" => value.clone_into(&mut self.serial),
            "vbios" => value.clone_into(&mut self.vbios),
            "processes" => {
                self.processes = list(value)
                    .map(|pair| {
                        let (pid, bytes) = pair.split_once(':').ok_or("expected pid:bytes,…")?;
                        Ok((number(pid)?, if bytes == "none" { None } else { Some(number(bytes)?) }))
                    })
                    .collect::<Result<_, String>>()?;
            }
            "process_utilization" => {
                self.process_utilization = list(value)
                    .map(|sample| {
                        let parts: Vec<&str> = sample.split(':').collect();
                        let [pid, percent, at_us] = parts[..] else {
                            return Err("expected pid:percent:us,…".to_owned());
                        };
                        Ok((number(pid)?, number(percent)?, number(at_us)?))
                    })
                    .collect::<Result<_, String>>()?;
            }
            "xids" => self.xids = list(value).map(number).collect::<Result<_, _>>()?,
            "fans" => self.fans = list(value).map(number).collect::<Result<_, _>>()?,
            "nvlink_down" => self.nvlink_down = list(value).map(number).collect::<Result<_, _>>()?,
            "nvlink_unused" => self.nvlink_unused = list(value).map(number).collect::<Result<_, _>>()?,
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
            _ => return self.set_numbered(key, value),
        }
        Ok(())
    }

    fn set_numbered(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some(id) = key.strip_prefix("field.") {
            let (id, scope) = id.split_once('/').unwrap_or((id, "0"));
            let scope = if scope == "all" { u32::MAX } else { number(scope)? };
            let key = (number(id)?, scope);
            match value.strip_prefix('!') {
                Some(code) => drop(self.fields.insert(key, Err(number(code)?))),
                None if value == "none" => drop(self.fields.remove(&key)),
                None => drop(self.fields.insert(key, Ok(number(value)?))),
            }
        } else if let Some(which) = key.strip_prefix("ecc.") {
            let parts: Vec<&str> = which.split('.').collect();
            let [location, counter, error] = parts[..] else {
                return Err("expected ecc.<location>.<counter>.<error>".to_owned());
            };
            let key = (number(location)?, number(counter)?, number(error)?);
            if value == "none" {
                self.ecc.remove(&key);
            } else {
                self.ecc.insert(key, number(value)?);
            }
        } else if let Some(id) = key.strip_prefix("gpm.") {
            let id = number(id)?;
            if value == "none" {
                self.gpm.remove(&id);
            } else {
                self.gpm.insert(id, number(value)?);
            }
        } else if let Some(slot) = key.strip_prefix("mig.") {
            let parts: Vec<&str> = value.split(',').map(str::trim).collect();
            let [uuid, gpu_instance, compute_instance, profile, total, used, sm] = parts[..] else {
                return Err("expected uuid,gi,ci,profile,total bytes,used bytes,SM percent".to_owned());
            };
            let instance = MigDevice {
                uuid: uuid.to_owned(),
                gpu_instance: number(gpu_instance)?,
                compute_instance: number(compute_instance)?,
                profile: profile.to_owned(),
                total_bytes: number(total)?,
                used_bytes: number(used)?,
                sm_percent: number(sm)?,
            };
            self.instances.insert(number(slot)?, instance);
        } else {
            let known = defaults::NUMBERS.iter().find(|(name, _)| *name == key);
            let (name, _) = known.ok_or("unknown key")?;
            if value == "none" {
                self.numbers.remove(name);
            } else {
                self.numbers.insert(name, number(value)?);
            }
        }
        Ok(())
    }

    /// A number by its key. NOT_SUPPORTED if the GPU does not have this number.
    pub(crate) fn number(&self, key: &str) -> Result<u64, Code> {
        self.numbers.get(key).copied().ok_or(NOT_SUPPORTED)
    }

    /// Like [`Gpu::number`], but as 32 bits, because most NVML calls return 32-bit numbers.
    pub(crate) fn short(&self, key: &str) -> Result<u32, Code> {
        u32::try_from(self.number(key)?).map_err(|_| INVALID_ARGUMENT)
    }

    pub(crate) fn field(&self, id: u32, scope: u32) -> Result<u64, Code> {
        self.fields.get(&(id, scope)).copied().unwrap_or(Err(NOT_SUPPORTED))
    }

    /// `00000000:1B:00.0`, as NVML prints it.
    pub(crate) fn pci_bus_id(&self) -> String {
        format!("00000000:{:02X}:00.0", self.bus)
    }

    /// Return code of `call` on this GPU; 0 for success.
    pub(crate) fn return_code(&self, call: &str) -> Code {
        if self.gone != 0 {
            return self.gone;
        }
        let all = || self.failures.get("all").filter(|_| !IDENTITY.contains(&call));
        self.failures.get(call).or_else(all).copied().unwrap_or(0)
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a number or out of range"))
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
    if CALLS.contains(&name) || IDENTITY.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(format!("unknown call `{name}`; use one of {}, {}", IDENTITY.join(", "), CALLS.join(", ")))
    }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_line_is_an_error_that_names_the_line() {
        for line in ["gpuz=2", "gpu.0.pwer=1", "gpu.7.lost=1", "gpu.0.lost=yes", "gpu.0.fail=pwr:3", "init"] {
            let message = State::parse(line).unwrap_err();
            assert!(message.contains(line), "{message}");
        }
    }
}
