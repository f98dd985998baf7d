//! The rules of every NVML call: count failures and impossible readings, replace counters by their totals, skip what is not
//! supported, and show the supervisor which call a thread is in. Knows nothing else of the values that are read.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use parking_lot::Mutex;

use super::clock::monotonic;
use super::counters::Counters;
use super::fields::{NvmlField, ReadField};
use super::limits::{IMPOSSIBLE, MEMORY_BYTES};
use super::nvml::{ErrorScope, classify};
use super::raw;
use trtllm_records::gpu::{GpuMemory, GpuState, NvmlState};

/// A failed NVML call or an impossible reading. The page shows both names as label values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallFailure {
    /// e.g. `power_usage`
    pub(super) call: &'static str,
    /// e.g. `gpu_is_lost`, or [`IMPOSSIBLE`]
    pub(super) error: &'static str,
}

/// The NVML call that a worker is in and when it began. The supervisor compares its age with the deadline.
pub(super) type CurrentCall = Arc<Mutex<Option<(&'static str, Instant)>>>;

/// The calls and fields that a GPU does not support, with the time when that was found. They are skipped.
#[derive(Debug, Default)]
pub(super) struct Unsupported(HashMap<NvmlField, Instant>);

impl Unsupported {
    /// Forgets what was found longer ago than `after`, so that it is tried again: a driver may support it later.
    pub(super) fn expire(&mut self, after: Duration) {
        self.0.retain(|_, found| found.elapsed() < after);
    }

    fn add(&mut self, field: NvmlField) {
        self.0.insert(field, Instant::now());
    }
}

/// One attempt to read a GPU.
#[derive(Debug)]
pub(super) struct Probe<'m> {
    current_call: &'m CurrentCall,
    unsupported: &'m mut Unsupported,
    pub(super) counters: &'m mut Counters,
    /// Number of calls and fields that the GPU answered. "Not supported" is an answer.
    answered: u32,
    pub(super) failures: Vec<CallFailure>,
    /// The first error that concerns more than its own call. Every later call is skipped.
    fatal: Option<ErrorScope>,
}

impl<'m> Probe<'m> {
    pub(super) fn new(
        current_call: &'m CurrentCall,
        unsupported: &'m mut Unsupported,
        counters: &'m mut Counters,
    ) -> Self {
        Self { current_call, unsupported, counters, answered: 0, failures: Vec::new(), fatal: None }
    }

    /// Makes one NVML call. `None` if it is unsupported, failed (recorded as a failure) or skipped after a fatal error. An
    /// unsupported call is remembered by its name, so each optional call needs a name of its own. If a call may support only
    /// some kinds of values, use a [`NvmlField`] with the kind as id.
    pub(super) fn call<T>(
        &mut self,
        call: impl Into<NvmlField>,
        body: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Option<T> {
        let field = call.into();
        if self.fatal.is_some() || self.unsupported.0.contains_key(&field) {
            return None;
        }
        *self.current_call.lock() = Some((field.name, Instant::now()));
        let result = body();
        *self.current_call.lock() = None;
        match result {
            Ok(value) => {
                self.answered += 1;
                Some(value)
            }
            Err(error) => {
                self.record_failure(field, &error);
                None
            }
        }
    }

    /// The value that a call returned, if a GPU can have it. Otherwise `None`, recorded as a failure of the call.
    pub(super) fn possible<N: PartialOrd>(
        &mut self,
        call: &'static str,
        limits: &RangeInclusive<N>,
        value: N,
    ) -> Option<N> {
        if limits.contains(&value) {
            return Some(value);
        }
        self.failures.push(CallFailure { call, error: IMPOSSIBLE });
        None
    }

    /// The total of a counter after this reading, or the value of another field. `None`, recorded as a failure, if the GPU cannot
    /// have it.
    pub(super) fn checked(&mut self, field: NvmlField, value: u64) -> Option<u64> {
        let Some(kind) = field.counter else { return self.possible(field.name, &field.limits(), value) };
        let total = self.counters.total(field, value, monotonic(), kind);
        if total.is_none() {
            self.failures.push(CallFailure { call: field.name, error: IMPOSSIBLE });
        }
        total
    }

    /// Makes one NVML call that returns a counter. Returns its total.
    pub(super) fn counter(&mut self, field: NvmlField, body: impl FnOnce() -> Result<u64, NvmlError>) -> Option<u64> {
        self.call(field, body).and_then(|reading| self.checked(field, reading))
    }

    /// Makes one NVML call that returns a number, which must be possible.
    pub(super) fn number<N: PartialOrd>(
        &mut self,
        call: &'static str,
        limits: &RangeInclusive<N>,
        body: impl FnOnce() -> Result<N, NvmlError>,
    ) -> Option<N> {
        self.call(call, body).and_then(|value| self.possible(call, limits, value))
    }

    /// Reads the memory of a GPU or MIG instance. What exceeds the total is impossible.
    pub(super) fn memory(&mut self, call: &'static str, device: &Device<'_>) -> GpuMemory {
        let mut memory = self.call(call, || raw::memory(device)).unwrap_or_default();
        memory.total_bytes = memory.total_bytes.and_then(|bytes| self.possible(call, &MEMORY_BYTES, bytes));
        let limits = 0..=memory.total_bytes.unwrap_or(*MEMORY_BYTES.end());
        for part in [&mut memory.used_bytes, &mut memory.free_bytes, &mut memory.reserved_bytes] {
            *part = part.and_then(|bytes| self.possible(call, &limits, bytes));
        }
        memory
    }

    /// Reads all fields that `from_fields` asks for, with one call. `from_fields` runs twice: before the call, to collect
    /// the fields, and after it, to use their values. So each field is named in one place only.
    pub(super) fn fields<T>(&mut self, device: &Device<'_>, from_fields: impl Fn(ReadField<'_>) -> T) -> T {
        let mut fields = Vec::new();
        from_fields(&mut |field| {
            fields.push(field);
            None
        });
        fields.retain(|field| !self.unsupported.0.contains_key(field));
        let mut values = HashMap::new();
        if !fields.is_empty() {
            let results = self.call("field_values", || raw::field_values(device, &fields)).unwrap_or_default();
            for (field, result) in fields.into_iter().zip(results) {
                match result {
                    Ok(value) => {
                        if let Some(value) = self.checked(field, value) {
                            values.insert(field, value);
                        }
                    }
                    // The driver does not know this id yet.
                    Err(NvmlError::InvalidArg) => self.unsupported.add(field),
                    Err(error) => self.record_failure(field, &error),
                }
            }
        }
        from_fields(&mut |field| values.get(&field).copied())
    }

    /// "Not supported" is not a failure: the call or field is skipped from then on.
    fn record_failure(&mut self, field: NvmlField, error: &NvmlError) {
        match classify(error) {
            (_, ErrorScope::Unsupported) => {
                // The library itself, and not the GPU, says that it does not have a function.
                if !matches!(error, NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) {
                    self.answered += 1;
                }
                self.unsupported.add(field);
            }
            (error, scope) => {
                self.failures.push(CallFailure { call: field.name, error });
                if self.fatal.is_none() && scope != ErrorScope::Call {
                    self.fatal = Some(scope);
                }
            }
        }
    }

    /// Tries every call again, because the GPU was reconfigured.
    pub(super) fn clear_unsupported(&mut self) {
        self.unsupported.0.clear();
    }

    /// Whether an error concerned the whole GPU or NVML itself, not only one call.
    pub(super) fn gpu_failed(&self) -> bool {
        self.fatal.is_some()
    }

    /// The state that follows from all calls of this attempt. A GPU on which every call fails counts as lost, unless
    /// every error is "no permission" or "unknown": in a container that has lost its devices (`systemctl daemon-reload`), every
    /// call returns "unknown". Calls that are skipped because they are unsupported do not count as answered.
    pub(super) fn state(&self) -> Result<GpuState, NvmlState> {
        match self.fatal {
            Some(ErrorScope::Session(state)) => Err(state),
            Some(ErrorScope::Gpu(state)) => Ok(state),
            _ if self.answered > 0 || self.failures.is_empty() => Ok(GpuState::Ok),
            _ if self.failures.iter().all(|failure| matches!(failure.error, "no_permission" | "unknown")) => {
                Ok(GpuState::NoPermission)
            }
            _ => Ok(GpuState::Lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::field;
    use super::super::limits::PCIE_REPLAYS;
    use super::*;

    fn with_new_probe(body: impl FnOnce(&mut Probe<'_>)) {
        body(&mut Probe::new(&CurrentCall::default(), &mut Unsupported::default(), &mut Counters::default()));
    }

    #[test]
    fn a_skipped_unsupported_call_does_not_make_a_failing_gpu_ok() {
        let (current_call, mut unsupported) = (CurrentCall::default(), Unsupported::default());
        let mut counters = Counters::default();
        Probe::new(&current_call, &mut unsupported, &mut counters)
            .call("fan", || Err::<u32, _>(NvmlError::NotSupported));
        for (error, state) in [
            (NvmlError::NoPermission, GpuState::NoPermission),
            (NvmlError::Unknown, GpuState::NoPermission),
            (NvmlError::NotFound, GpuState::Lost),
        ] {
            let mut probe = Probe::new(&current_call, &mut unsupported, &mut counters);
            assert_eq!(probe.call("fan", || Ok(1)), None);
            probe.call("temperature", || Err::<u32, _>(error));
            assert_eq!(probe.state(), Ok(state));
            // Nor does a function that the library does not have.
            probe.call("new", || Err::<u32, _>(NvmlError::FunctionNotFound));
            assert_eq!(probe.state(), Ok(state));
        }
    }

    #[test]
    fn no_call_is_made_after_a_gpu_is_lost() {
        with_new_probe(|probe| {
            probe.call("power_usage", || Err::<u32, _>(NvmlError::GpuLost));
            assert_eq!(probe.call("temperature", || Ok(40)), None);
            assert_eq!(probe.state(), Ok(GpuState::Lost));
        });
    }

    #[test]
    fn an_impossible_counter_is_absent_and_a_failure_of_its_call() {
        with_new_probe(|probe| {
            let replays = field("field_pcie_replay", 94).counter(PCIE_REPLAYS);
            let mut read = |count| probe.counter(replays, || Ok(count));
            assert_eq!([read(5), read(4_000_000_000), read(6)], [Some(5), None, Some(6)]);
            assert_eq!(probe.failures, [CallFailure { call: "field_pcie_replay", error: IMPOSSIBLE }]);
            assert_eq!(probe.state(), Ok(GpuState::Ok));
        });
    }
}
