//! What a pass of the engine's loop gives to its scheduler.

use crate::adapters::AdapterPool;
use crate::config::Config;
use crate::random::Random;

/// What the scheduler needs besides the requests.
pub(crate) struct Pass<'a> {
    pub(crate) config: &'a Config,
    pub(crate) now: f64,
    pub(crate) batch_limit: u32,
    pub(crate) micro_batch: usize,
    /// Slot of the batch in [`Request::shares`](crate::request::Request::shares).
    pub(crate) slot: usize,
    pub(crate) random: &'a mut Random,
    pub(crate) adapters: &'a mut AdapterPool,
    pub(crate) link_free_at: &'a mut f64,
}
