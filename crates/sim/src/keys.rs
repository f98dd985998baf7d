//! The keys by which blocks of the KV cache are found.

use std::sync::Arc;

use crate::load::Arrival;
use crate::random::mix;

/// The tokens of a sequence as keys of its blocks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    known: Option<Arc<[u64]>>,
    prefix: Option<(u64, u32)>,
    own: u64,
    tokens_per_block: u32,
}

impl Keys {
    pub(crate) fn new(arrival: &Arrival, tokens_per_block: u32) -> Self {
        // Mixed, so that blocks of prefixes with neighbouring names do not get the same key.
        let prefix = arrival.prefix.map(|(name, tokens)| (mix(!name), tokens));
        Self { known: arrival.keys.clone(), prefix, own: mix(arrival.conversation), tokens_per_block }
    }

    /// The key of block `index`. Blocks that lie within the shared prefix have the same key in all requests with this prefix.
    pub(crate) fn block(&self, index: u32) -> u64 {
        if let Some(key) = self.known.as_ref().and_then(|keys| keys.get(index as usize)) {
            return *key;
        }
        match self.prefix {
            Some((prefix, tokens)) if (index + 1) * self.tokens_per_block <= tokens => mix(prefix ^ u64::from(index)),
            _ => mix(self.own ^ u64::from(index)),
        }
    }

    /// The key and the number of the shared tokens at the start of block `index`, if the prefix ends within this block.
    pub(crate) fn partial(&self, index: u32) -> Option<(u64, u32)> {
        let (prefix, tokens) = self.prefix?;
        let shared = tokens.checked_sub(index * self.tokens_per_block)?;
        (shared > 0 && shared < self.tokens_per_block).then(|| (mix(!prefix ^ u64::from(index)), shared))
    }
}
