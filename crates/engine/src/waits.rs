//! The passes of a PyTorch engine's loop that waited for work. A pass begins by fetching requests, and an idle engine blocks
//! there. The times of the pass contain the wait, and records report them with a delay.

/// The last two times that the engine was idle.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waits {
    /// First and last pass that may have waited.
    passes: [Option<(u64, u64)>; 2],
}

impl Waits {
    /// The record of iteration `iter` is the first after idle. With an interval of the statistics above 1, the pass that waited
    /// may have no record.
    pub(crate) fn add(&mut self, iter: u64, interval: u64) {
        self.passes = [Some((iter.saturating_sub(interval.saturating_sub(1)), iter)), self.passes[0]];
    }

    /// Whether the latency of iteration `iter` may contain a wait.
    pub(crate) fn in_latency(&self, iter: Option<u64>) -> bool {
        self.contain(iter, 0)
    }

    /// Whether the host's step in the record of iteration `iter` contains a wait. The step is that of the pass before. Under the
    /// overlap scheduler it is that of the same pass, because its records are one pass late (upstream: `profile_step`).
    pub(crate) fn in_host_step(&self, iter: Option<u64>, overlap: bool) -> bool {
        self.contain(iter, u64::from(!overlap))
    }

    /// Like [`Waits::in_host_step`], for the device's step, which lags by one more pass.
    pub(crate) fn in_device_step(&self, iter: Option<u64>, overlap: bool) -> bool {
        self.contain(iter, 1 + u64::from(!overlap))
    }

    fn contain(&self, iter: Option<u64>, lag: u64) -> bool {
        let Some(pass) = iter.and_then(|iter| iter.checked_sub(lag)) else { return false };
        self.passes.iter().flatten().any(|(first, last)| (*first..=*last).contains(&pass))
    }
}
