//! The clock of the simulation.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Virtual time. It does not advance while the engine is stopped.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) at: f64,
    pub(crate) since: Option<Instant>,
    pub(crate) speed: f64,
    /// Whether other processes have the same clock. Then it does not slow down if the machine is too slow.
    pub(crate) is_shared: bool,
}

impl Clock {
    /// `start`: the Unix time of virtual time 0, if it is not now.
    pub(crate) fn new(start: Option<f64>, speed: f64, now: Instant) -> Self {
        // Negative before the start.
        let at = start.map_or(0.0, |start| (unix_seconds() - start) * speed);
        Self { at, since: Some(now), speed, is_shared: start.is_some() }
    }

    pub(crate) fn now(&self, now: Instant) -> f64 {
        self.at + self.since.map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64() * self.speed)
    }
}

pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
