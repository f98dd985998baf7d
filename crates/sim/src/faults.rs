//! The effects of the configured faults at a given time.

use crate::config::{Fault, Slow};

/// The faults of an engine, and which of them have happened.
#[derive(Debug)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    hung: bool,
    next_spike: f64,
    restarted_until: f64,
}

impl Faults {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        Self { faults, hung: false, next_spike: 0.0, restarted_until: -1.0 }
    }

    pub(crate) fn slow(&self, now: f64) -> Option<(f64, Slow)> {
        self.faults.iter().find_map(|fault| match *fault {
            Fault::Slow { at, factor, why } if now >= at => Some((factor, why)),
            _ => None,
        })
    }

    pub(crate) fn is_wedged(&self, now: f64) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Wedge { at } if now >= *at))
    }

    /// Seconds by which faults extend an iteration that starts at `start`.
    pub(crate) fn delay(&mut self, start: f64, seconds: f64) -> f64 {
        let mut delay = 0.0;
        for fault in &self.faults {
            match *fault {
                Fault::Hang { at, seconds: hang } if !self.hung && start + seconds >= at => {
                    self.hung = true;
                    delay += (at + hang - start.max(at)).max(0.0);
                }
                Fault::Spike { every, seconds } if start >= self.next_spike => {
                    self.next_spike = start + every;
                    delay += seconds;
                }
                _ => {}
            }
        }
        delay
    }

    /// When the engine serves again, if a restart is due at `now`.
    pub(crate) fn restart(&mut self, now: f64) -> Option<f64> {
        let until = self.faults.iter().find_map(|fault| match *fault {
            Fault::Restart { at, seconds } if now >= at && at + seconds > self.restarted_until => Some(at + seconds),
            _ => None,
        })?;
        self.restarted_until = until;
        Some(until)
    }

    pub(crate) fn error_share(&self) -> f64 {
        self.faults.iter().map(|fault| if let Fault::Errors { share } = fault { *share } else { 0.0 }).sum()
    }

    /// Bytes by which host memory has grown, and whether the limit is reached.
    pub(crate) fn memory(&self, now: f64) -> (u64, bool) {
        let grown = self.faults.iter().find_map(|fault| match *fault {
            Fault::MemoryGrowth { bytes_per_second, limit } => Some((bytes_per_second * now, limit)),
            _ => None,
        });
        grown.map_or((0, false), |(grown, limit)| (grown.min(limit) as u64, grown >= limit))
    }

    /// The batch limit that the tuner has set, if it is not the configured one.
    pub(crate) fn tuned_limit(&self, now: f64) -> Option<u32> {
        self.faults.iter().find_map(|fault| match *fault {
            Fault::Tuner { low, period } if now % period < period / 2.0 => Some(low),
            _ => None,
        })
    }

    /// The share of records that are lost at random, and the share of polls that lose all their records.
    pub(crate) fn losses(&self) -> (f64, f64) {
        self.faults.iter().fold((0.0, 0.0), |(random, polls), fault| match *fault {
            Fault::LoseRecords { share } => (random + share, polls),
            Fault::SecondReader { share } => (random, polls + share),
            _ => (random, polls),
        })
    }
}
