//! The KV cache of one rank: blocks on the GPU and copies on the host. The key of a full block is a hash of all tokens up to its
//! end. The least recently used block is evicted first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::config::CacheConfig;
use crate::load::Arrival;
use crate::random::mix;
use crate::record::CacheCounts;

/// Computes a key for each block of a sequence. Blocks with the same key have the same tokens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    known: Option<Arc<[u64]>>,
    prefix: Option<(u64, u32)>,
    own: u64,
    tokens_per_block: u32,
}

impl Keys {
    pub(crate) fn new(arrival: &Arrival, tokens_per_block: u32) -> Self {
        // Hashes the name, because blocks of prefixes with neighbouring names would otherwise get the same key.
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

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    /// 0 for a block that other requests cannot find.
    key: u64,
    /// The key of its first tokens, if a shared prefix ends within the block.
    partial: u64,
    references: u32,
    stamp: u64,
}

#[derive(Debug)]
pub struct Cache {
    config: CacheConfig,
    blocks: Vec<Block>,
    blank: Vec<u32>,
    /// Unreferenced blocks with content, oldest first, with their stamps. A block whose stamp changed was used again since.
    unused: VecDeque<(u32, u64)>,
    evictable: usize,
    /// The fewest available blocks since the last report.
    least_available: usize,
    index: HashMap<u64, u32>,
    partial: HashMap<u64, u32>,
    host: HashMap<u64, u64>,
    host_order: VecDeque<(u64, u64)>,
    clock: u64,
    pub counts: CacheCounts,
}

impl Cache {
    pub(crate) fn new(config: CacheConfig) -> Self {
        let blocks = config.blocks;
        Self {
            config,
            blocks: vec![Block::default(); blocks as usize],
            blank: (0..blocks).rev().collect(),
            unused: VecDeque::new(),
            evictable: 0,
            least_available: blocks as usize,
            index: HashMap::new(),
            partial: HashMap::new(),
            host: HashMap::new(),
            host_order: VecDeque::new(),
            clock: 0,
            counts: CacheCounts::default(),
        }
    }

    /// Blocks that can be taken: blank blocks, and unreferenced blocks with content.
    #[must_use]
    pub fn available(&self) -> usize {
        self.blank.len() + self.evictable
    }

    /// The most blocks in use since the last report.
    pub(crate) fn peak_used(&self) -> usize {
        self.blocks.len() - self.least_available
    }

    /// Notes that a record reports the peak.
    pub(crate) fn reset_peak(&mut self) {
        self.least_available = self.available();
    }

    #[must_use]
    pub fn evictable(&self) -> usize {
        self.evictable
    }

    #[must_use]
    pub fn host_used(&self) -> usize {
        self.host.len()
    }

    /// Blocks of this prompt that other requests hold, so they need no further capacity.
    pub(crate) fn held_by_others(&self, keys: &Keys, prompt: u32) -> usize {
        if !self.config.reuse {
            return 0;
        }
        let full = (prompt - 1) / self.config.tokens_per_block;
        let held =
            |index: &u32| self.index.get(&keys.block(*index)).is_some_and(|b| self.blocks[*b as usize].references > 0);
        (0..full).take_while(held).count()
    }

    /// Takes the blocks of a prompt, which must be [available](Self::available). Returns the blocks, and the tokens that need no
    /// computation.
    pub(crate) fn take_prompt(&mut self, keys: &Keys, prompt: u32) -> (Vec<u32>, u32) {
        let size = self.config.tokens_per_block;
        let total = prompt.div_ceil(size);
        let mut taken = Vec::with_capacity(total as usize + 4);
        let mut cached = 0;
        if self.config.reuse {
            // The last token of a prompt is always computed.
            let full = (prompt - 1) / size;
            while (taken.len() as u32) < full {
                let Some(block) = self.find(keys.block(taken.len() as u32)) else { break };
                taken.push(block);
                cached += size;
            }
            let index = taken.len() as u32;
            let partial =
                keys.partial(index).filter(|(_, shared)| self.config.partial_reuse && cached + shared < prompt);
            if let Some((_, shared)) = partial.filter(|(key, _)| self.partial.contains_key(key))
                && let Some(block) = self.take_block()
            {
                self.counts.partial_reused += 1;
                self.counts.copied += 1;
                taken.push(block);
                cached += shared;
            }
            self.counts.missed += u64::from(total) - taken.len() as u64;
        }
        while (taken.len() as u32) < total {
            let Some(block) = self.take_block() else { break };
            taken.push(block);
        }
        self.least_available = self.least_available.min(self.available());
        (taken, cached)
    }

    /// Takes a block for generated tokens.
    pub(crate) fn take_generation(&mut self) -> Option<u32> {
        let block = self.take_block()?;
        self.counts.generation_alloc += 1;
        self.least_available = self.least_available.min(self.available());
        Some(block)
    }

    /// Takes a block with this content from the GPU or from the host.
    fn find(&mut self, key: u64) -> Option<u32> {
        if let Some(block) = self.index.get(&key).copied() {
            let found = &mut self.blocks[block as usize];
            if found.references == 0 {
                self.evictable -= 1;
            }
            found.references += 1;
            self.clock += 1;
            found.stamp = self.clock;
            self.counts.full_reused += 1;
            return Some(block);
        }
        self.host.contains_key(&key).then_some(())?;
        let block = self.take_block()?;
        // Taking the block may have dropped the copy on the host. The copy still counts as onboarded, because the real
        // engine pins it first.
        self.host.remove(&key);
        self.counts.onboarded += 1;
        self.counts.full_reused += 1;
        self.blocks[block as usize].key = key;
        self.index.insert(key, block);
        Some(block)
    }

    fn take_block(&mut self) -> Option<u32> {
        let block = match self.blank.pop() {
            Some(block) => {
                self.counts.alloc_new += 1;
                block
            }
            None => self.evict()?,
        };
        self.counts.alloc_total += 1;
        self.clock += 1;
        self.blocks[block as usize] = Block { references: 1, stamp: self.clock, ..Block::default() };
        Some(block)
    }

    fn evict(&mut self) -> Option<u32> {
        loop {
            let (block, stamp) = self.unused.pop_front()?;
            let Block { key, partial, references, stamp: current } = self.blocks[block as usize];
            if current != stamp || references > 0 {
                continue;
            }
            self.evictable -= 1;
            self.index.remove(&key);
            if self.partial.get(&partial) == Some(&block) {
                self.partial.remove(&partial);
            }
            if self.config.host_blocks > 0 {
                self.offload(key);
            }
            return Some(block);
        }
    }

    fn offload(&mut self, key: u64) {
        self.clock += 1;
        self.host.insert(key, self.clock);
        self.host_order.push_back((key, self.clock));
        self.counts.offloaded += 1;
        while self.host.len() > self.config.host_blocks as usize {
            let Some((old, stamp)) = self.host_order.pop_front() else { break };
            if self.host.get(&old) == Some(&stamp) {
                self.host.remove(&old);
                self.counts.host_dropped += 1;
            }
        }
    }

    /// Makes the full blocks of the first `tokens` tokens available to other requests.
    pub(crate) fn store(&mut self, keys: &Keys, blocks: &[u32], tokens: u32) {
        if !self.config.reuse {
            return;
        }
        for (index, block) in (0u32..).zip(blocks).take((tokens / self.config.tokens_per_block) as usize) {
            let key = keys.block(index);
            if self.blocks[*block as usize].key == 0 && !self.index.contains_key(&key) {
                self.blocks[*block as usize].key = key;
                self.index.insert(key, *block);
                if let Some((partial, _)) = keys.partial(index) {
                    self.blocks[*block as usize].partial = partial;
                    self.partial.insert(partial, *block);
                }
            }
        }
    }

    /// Releases blocks. Blocks with reusable content stay until they are evicted. The blocks at the end of a sequence
    /// are evicted first.
    pub(crate) fn release(&mut self, blocks: &[u32]) {
        for block in blocks.iter().rev() {
            let held = &mut self.blocks[*block as usize];
            held.references -= 1;
            if held.references > 0 {
                continue;
            }
            if held.key == 0 {
                *held = Block::default();
                self.blank.push(*block);
            } else {
                self.clock += 1;
                held.stamp = self.clock;
                self.evictable += 1;
                self.unused.push_back((*block, self.clock));
            }
        }
        if self.unused.len() > 2 * self.blocks.len() + 64 {
            let blocks = &self.blocks;
            self.unused.retain(|(block, stamp)| blocks[*block as usize].stamp == *stamp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn arrival(prefix: Option<(u64, u32)>, conversation: u64) -> Arrival {
        Arrival { prefix, conversation, ..Arrival::default() }
    }

    fn cache(blocks: u32, host_blocks: u32) -> Cache {
        Cache::new(CacheConfig { blocks, host_blocks, ..Config::default().cache })
    }

    fn pass(cache: &mut Cache, arrival: &Arrival, prompt: u32) -> u32 {
        let keys = Keys::new(arrival, 32);
        let (blocks, cached) = cache.take_prompt(&keys, prompt);
        cache.store(&keys, &blocks, prompt);
        cache.release(&blocks);
        cached
    }

    #[test]
    fn a_prefix_is_computed_once_and_its_last_block_is_copied() {
        let mut cache = cache(100, 0);
        assert_eq!(pass(&mut cache, &arrival(Some((7, 100)), 1), 200), 0);
        assert_eq!(pass(&mut cache, &arrival(Some((7, 100)), 2), 200), 100);
        assert_eq!((cache.counts.full_reused, cache.counts.partial_reused, cache.counts.missed), (3, 1, 10));
        assert_eq!(cache.available(), 100);
    }

    #[test]
    fn an_evicted_block_comes_back_from_the_host() {
        for (host, cached) in [(0, 0), (100, 192)] {
            let mut cache = cache(10, host);
            pass(&mut cache, &arrival(None, 1), 200);
            pass(&mut cache, &arrival(None, 2), 320);
            assert_eq!(pass(&mut cache, &arrival(None, 1), 200), cached);
            assert_eq!(cache.counts.onboarded, u64::from(cached / 32));
            assert_eq!(cache.available(), 10);
        }
    }
}
