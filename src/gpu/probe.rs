//! Asks NVML one thing after another: counts what failed, remembers what is not supported, and lets the supervisor see
//! the call that a thread is inside of. Knows no reading.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use super::fields::Field;
use super::nvml::{Reach, meaning};
use super::raw;
use crate::model::gpu::{GpuState, NvmlState};

/// A call that failed, with NVML's error as a word.
pub(super) type Failure = (&'static str, &'static str);

/// The call a worker is inside of, for the supervisor's deadline.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Option<(&'static str, Instant)>>>);

impl Watch {
    /// The call and when it began.
    pub(super) fn inside(&self) -> Option<(&'static str, Instant)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, call: Option<&'static str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call.map(|call| (call, Instant::now()));
    }
}

/// What a GPU does not have: asked once, then left out. Not for ever, since a driver may only not have it yet.
#[derive(Debug, Default)]
pub(super) struct Lacking {
    calls: HashSet<(&'static str, u32)>,
    fields: HashSet<(u32, u32)>,
    since: Option<Instant>,
}

impl Lacking {
    /// Forgets everything that was found out longer ago than this.
    pub(super) fn expire(&mut self, after: Duration) {
        if self.since.is_some_and(|since| since.elapsed() >= after) {
            *self = Self::default();
        }
    }

    /// Forgets everything: the GPU is not what it was.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn now(&mut self) -> &mut Self {
        self.since.get_or_insert_with(Instant::now);
        self
    }
}

/// The answers to a batch of fields.
#[derive(Debug, Default)]
pub(super) struct Values(Vec<(Field, u64)>);

impl Values {
    pub(super) fn get(&self, field: Field) -> Option<u64> {
        self.0.iter().find(|(answered, _)| *answered == field).map(|(_, value)| *value)
    }

    pub(super) fn all<const N: usize>(&self, fields: [Field; N]) -> [Option<u64>; N] {
        fields.map(|field| self.get(field))
    }
}

/// One attempt at a GPU.
#[derive(Debug)]
pub(super) struct Probe<'m> {
    watch: &'m Watch,
    lacking: &'m mut Lacking,
    answered: u32,
    pub(super) failures: Vec<Failure>,
    /// The first error that reaches beyond its own call; nothing is asked after it.
    fault: Option<Reach>,
}

impl<'m> Probe<'m> {
    pub(super) fn new(watch: &'m Watch, lacking: &'m mut Lacking) -> Self {
        Self { watch, lacking, answered: 0, failures: Vec::new(), fault: None }
    }

    /// The answer, or `None`: unsupported, failed (kept as a failure), or not asked after a fault. What is unsupported is
    /// remembered by `call`, so each thing that may be has a word of its own.
    pub(super) fn ask<T>(&mut self, call: &'static str, body: impl FnOnce() -> Result<T, NvmlError>) -> Option<T> {
        self.ask_of(call, 0, body)
    }

    /// As [`Probe::ask`] for a call of which each kind may be lacking alone.
    pub(super) fn ask_of<T>(
        &mut self,
        call: &'static str,
        kind: u32,
        body: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Option<T> {
        if self.fault.is_some() || self.lacking.calls.contains(&(call, kind)) {
            return None;
        }
        self.watch.set(Some(call));
        let answer = body();
        self.watch.set(None);
        match answer {
            Ok(value) => {
                self.answered += 1;
                Some(value)
            }
            Err(error) => {
                if !self.note(call, &error) {
                    self.lacking.now().calls.insert((call, kind));
                }
                None
            }
        }
    }

    /// Many numbers by one call. What the driver does not know or the GPU does not have is left out from then on.
    pub(super) fn fields(&mut self, device: &Device<'_>, wanted: impl IntoIterator<Item = Field>) -> Values {
        let open: Vec<Field> =
            wanted.into_iter().filter(|field| !self.lacking.fields.contains(&(field.id, field.scope))).collect();
        let asked: Vec<(u32, u32)> = open.iter().map(|field| (field.id, field.scope)).collect();
        let mut values = Values::default();
        if asked.is_empty() {
            return values;
        }
        let answers = self.ask("field_values", || raw::field_values(device, &asked)).unwrap_or_default();
        for (field, answer) in open.into_iter().zip(answers) {
            match answer {
                Ok(value) => values.0.push((field, value)),
                // An id that is newer than the driver.
                Err(NvmlError::InvalidArg) => drop(self.lacking.now().fields.insert((field.id, field.scope))),
                Err(error) => {
                    if !self.note(field.name, &error) {
                        self.lacking.now().fields.insert((field.id, field.scope));
                    }
                }
            }
        }
        values
    }

    /// Keeps a failure. False: it is none, this is not supported.
    fn note(&mut self, call: &'static str, error: &NvmlError) -> bool {
        match meaning(error) {
            (_, Reach::Unsupported) => {
                self.answered += 1;
                false
            }
            (word, reach) => {
                self.failures.push((call, word));
                if self.fault.is_none() && reach != Reach::Call {
                    self.fault = Some(reach);
                }
                true
            }
        }
    }

    /// The GPU is not what it was: ask for everything again.
    pub(super) fn forget_lacking(&mut self) {
        self.lacking.clear();
    }

    pub(super) fn faulted(&self) -> bool {
        self.fault.is_some()
    }

    /// What the GPU's answers make of it. One that answers no call at all is as good as lost, whatever it says; after
    /// a cgroup lost its devices (`systemctl daemon-reload`), every call says "unknown". What is known to be lacking was
    /// not asked and so is no answer.
    pub(super) fn state(&self) -> Result<GpuState, NvmlState> {
        match self.fault {
            Some(Reach::Session(state)) => Err(state),
            Some(Reach::Gpu(state)) => Ok(state),
            _ if self.answered > 0 || self.failures.is_empty() => Ok(GpuState::Ok),
            _ if self.failures.iter().all(|(_, word)| *word == "no_permission") => Ok(GpuState::NoPermission),
            _ => Ok(GpuState::Lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe of a GPU of which nothing is known.
    fn fresh(body: impl FnOnce(&mut Probe<'_>)) {
        body(&mut Probe::new(&Watch::default(), &mut Lacking::default()));
    }

    #[test]
    fn a_failed_reading_is_kept_by_call_and_word_and_the_next_is_asked() {
        fresh(|probe| {
            assert_eq!(probe.ask("power_usage", || Err::<u32, _>(NvmlError::Unknown)), None);
            assert_eq!(probe.ask("temperature", || Ok(40)), Some(40));
            assert_eq!(probe.failures, [("power_usage", "unknown")]);
            assert_eq!(probe.state(), Ok(GpuState::Ok));
        });
    }

    #[test]
    fn an_unsupported_reading_is_no_failure_and_is_not_asked_again_until_it_is_forgotten() {
        let (watch, mut lacking) = (Watch::default(), Lacking::default());
        for _ in 0..2 {
            let mut probe = Probe::new(&watch, &mut lacking);
            let mut asked = false;
            probe.ask("power_usage", || {
                asked = true;
                Err::<u32, _>(NvmlError::NotSupported)
            });
            assert!(asked && probe.failures.is_empty());
            assert_eq!(probe.state(), Ok(GpuState::Ok));
            assert_eq!(probe.ask("power_usage", || Ok(1)), None);
            lacking.expire(Duration::ZERO);
        }
    }

    #[test]
    fn what_a_gpu_lacks_does_not_answer_for_a_gpu_that_forbids_the_rest() {
        let (watch, mut lacking) = (Watch::default(), Lacking::default());
        Probe::new(&watch, &mut lacking).ask("fan", || Err::<u32, _>(NvmlError::NotSupported));
        for (error, state) in [(NvmlError::NoPermission, GpuState::NoPermission), (NvmlError::Unknown, GpuState::Lost)]
        {
            let mut probe = Probe::new(&watch, &mut lacking);
            assert_eq!(probe.ask("fan", || Ok(1)), None);
            probe.ask("temperature", || Err::<u32, _>(error));
            assert_eq!(probe.state(), Ok(state));
        }
    }

    #[test]
    fn what_is_lacking_is_kept_for_its_time() {
        let (watch, mut lacking) = (Watch::default(), Lacking::default());
        Probe::new(&watch, &mut lacking).ask("fan", || Err::<u32, _>(NvmlError::NotSupported));
        lacking.expire(Duration::from_secs(3600));
        assert_eq!(Probe::new(&watch, &mut lacking).ask("fan", || Ok(1)), None);
    }

    #[test]
    fn a_lost_gpu_is_asked_nothing_more() {
        fresh(|probe| {
            probe.ask("power_usage", || Err::<u32, _>(NvmlError::GpuLost));
            assert_eq!(probe.ask("temperature", || Ok(40)), None);
            assert_eq!(probe.state(), Ok(GpuState::Lost));
        });
    }

    #[test]
    fn a_gpu_that_answers_no_call_is_lost_and_one_that_forbids_all_is_no_permission() {
        fresh(|probe| {
            probe.ask("power_usage", || Err::<u32, _>(NvmlError::Unknown));
            probe.ask("temperature", || Err::<u32, _>(NvmlError::NoPermission));
            assert_eq!(probe.state(), Ok(GpuState::Lost));
        });
        fresh(|probe| {
            probe.ask("temperature", || Err::<u32, _>(NvmlError::NoPermission));
            assert_eq!(probe.state(), Ok(GpuState::NoPermission));
        });
    }

    #[test]
    fn an_unloaded_driver_ends_the_session() {
        fresh(|probe| {
            probe.ask("temperature", || Err::<u32, _>(NvmlError::DriverNotLoaded));
            assert_eq!(probe.state(), Err(NvmlState::DriverNotLoaded));
        });
    }

    #[test]
    fn the_watch_names_the_call_only_while_it_runs() {
        let (watch, mut lacking) = (Watch::default(), Lacking::default());
        Probe::new(&watch, &mut lacking).ask("power_usage", || {
            assert_eq!(watch.inside().map(|(call, _)| call), Some("power_usage"));
            Ok(0)
        });
        assert_eq!(watch.inside(), None);
    }
}
