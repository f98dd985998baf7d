//! LoRA adapters in the slots of the GPU. The least recently used adapter is dropped first.

use crate::config::Adapters;

#[derive(Debug, Default)]
pub(crate) struct AdapterPool {
    slots: usize,
    seconds: f64,
    /// Least recently used first.
    loaded: Vec<u32>,
}

impl AdapterPool {
    pub(crate) fn new(adapters: Option<&Adapters>) -> Self {
        let (slots, seconds) = adapters.map_or((0, 0.0), |adapters| (adapters.slots as usize, adapters.load_seconds));
        Self { slots, seconds, loaded: Vec::new() }
    }

    /// Seconds to load this adapter, 0 if it is already loaded. Absent if active requests use all slots.
    pub(crate) fn use_adapter(&mut self, adapter: u32, is_used: impl Fn(u32) -> bool) -> Option<f64> {
        if let Some(position) = self.loaded.iter().position(|loaded| *loaded == adapter) {
            self.loaded.remove(position);
            self.loaded.push(adapter);
            return Some(0.0);
        }
        if self.loaded.len() >= self.slots {
            let unused = self.loaded.iter().position(|loaded| !is_used(*loaded))?;
            self.loaded.remove(unused);
        }
        self.loaded.push(adapter);
        Some(self.seconds)
    }
}
