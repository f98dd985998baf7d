//! Situations caused by the limits and by the KV cache.

use super::{ALL, CPP, OLD_CPP, PY, RESERVING, Situation, rate};
use crate::config::Policy;
use crate::load::{Arrivals, Length, Prefixes};

pub(super) const TABLE: &[Situation] = &[
    Situation {
        name: "batch-limit",
        cause: "batch_limit",
        says: "More requests arrive than max_batch_size lets decode together.",
        on: ALL,
        change: |c| {
            c.limits.max_batch_size = 8;
            rate(c, 12.0);
        },
        cure: "raise max_batch_size to 64",
    },
    Situation {
        name: "batch-limit-closed-loop",
        cause: "batch_limit",
        says: "64 clients share 16 slots.",
        on: ALL,
        change: |c| {
            c.limits.max_batch_size = 16;
            c.load.arrivals = Arrivals::Closed { concurrency: 64 };
            c.load.think = 0.0;
        },
        cure: "raise max_batch_size to 64",
    },
    Situation {
        name: "batch-limit-bursts",
        cause: "batch_limit",
        says: "Bursts of 40 requests meet 8 slots.",
        on: PY,
        change: |c| {
            c.limits.max_batch_size = 8;
            c.load.arrivals = Arrivals::Bursty { rate: 6.0, burst: 40 };
        },
        cure: "raise max_batch_size to 64",
    },
    Situation {
        name: "token-limit",
        cause: "token_limit",
        says: "max_num_tokens leaves room for one block of context in an iteration.",
        on: ALL,
        change: |c| {
            c.limits.max_num_tokens = 64;
            rate(c, 10.0);
        },
        cure: "raise max_num_tokens to 8192",
    },
    Situation {
        name: "token-limit-long-prompts",
        cause: "token_limit",
        says: "Prompts of 2000 tokens are computed 96 tokens at a time.",
        on: ALL,
        change: |c| {
            c.limits.max_num_tokens = 96;
            c.load.prompt = Length::Fixed(2000);
            rate(c, 3.0);
        },
        cure: "raise max_num_tokens to 2048",
    },
    Situation {
        name: "static-batching",
        cause: "static_batching",
        says: "A batch runs until its longest answer ends; its other slots stay empty.",
        on: &[CPP, OLD_CPP],
        change: |c| {
            c.limits.policy = Policy::Static;
            c.load.output = Length::Mixed { short: 20, long: 600, share: 0.1 };
            c.limits.max_batch_size = 32;
        },
        cure: "use in-flight batching",
    },
    Situation {
        name: "static-batching-offline",
        cause: "static_batching",
        says: "An offline job in static batches of 16.",
        on: &[CPP, OLD_CPP],
        change: |c| {
            c.limits.policy = Policy::Static;
            c.limits.max_batch_size = 16;
            c.load.arrivals = Arrivals::Offline { requests: 4000 };
            c.load.output = Length::Mixed { short: 20, long: 400, share: 0.2 };
        },
        cure: "use in-flight batching",
    },
    Situation {
        name: "kv-capacity",
        cause: "kv_capacity",
        says: "The KV cache is full: requests wait for blocks.",
        on: ALL,
        change: |c| {
            c.cache.blocks = 110;
            c.cache.reuse = false;
        },
        cure: "give the KV cache more memory",
    },
    Situation {
        name: "kv-capacity-prompts",
        cause: "kv_capacity",
        says: "Each prompt takes a third of the KV cache, and its blocks are free again before the record is written.",
        on: ALL,
        change: |c| {
            c.cache.blocks = 13;
            c.cache.reuse = false;
            // Four blocks each.
            c.load.prompt = Length::Sample((97..128).collect());
            (c.load.output, c.load.max_new_tokens) = (Length::Fixed(1), Some(1));
            c.load.arrivals = Arrivals::Closed { concurrency: 120 };
            c.load.think = 0.0;
        },
        cure: "give the KV cache more memory",
    },
    Situation {
        name: "kv-pauses",
        cause: "kv_capacity",
        says: "MAX_UTILIZATION pauses requests and computes them again.",
        on: ALL,
        change: |c| {
            c.cache.blocks = 160;
            c.cache.reuse = false;
            c.limits.policy = Policy::MaxUtilization;
            c.load.output = Length::Fixed(300);
            rate(c, 5.0);
        },
        cure: "give the KV cache more memory",
    },
    Situation {
        name: "kv-reservation",
        cause: "kv_reservation",
        says: "Clients ask for 4000 tokens and get 100; the policy keeps blocks for 4000.",
        on: RESERVING,
        change: |c| {
            c.load.max_new_tokens = Some(4000);
            c.cache.blocks = 700;
        },
        cure: "use MAX_UTILIZATION",
    },
    Situation {
        name: "kv-reservation-by-clients",
        cause: "kv_reservation",
        says: "A client library sets max_tokens to 8000 in each request.",
        on: RESERVING,
        change: |c| {
            c.load.max_new_tokens = Some(8000);
            c.cache.blocks = 1500;
        },
        cure: "let clients ask for what they need",
    },
    Situation {
        name: "kv-thrash",
        cause: "kv_thrash",
        says: "40 shared prefixes do not fit in the cache: blocks are evicted before they are used again.",
        on: ALL,
        change: |c| {
            c.load.prefixes = Some(Prefixes { families: 40, tokens: 2000 });
            c.cache.blocks = 900;
            c.load.output = Length::Fixed(30);
        },
        cure: "give the KV cache more memory",
    },
    Situation {
        name: "kv-thrash-conversations",
        cause: "kv_thrash",
        says: "Conversations come back after their blocks are gone.",
        on: PY,
        change: |c| {
            c.load.turns = 8;
            c.load.think = 12.0;
            c.load.prompt = Length::Fixed(500);
            c.load.output = Length::Fixed(60);
            c.cache.blocks = 1500;
            rate(c, 1.0);
        },
        cure: "keep evicted blocks on the host",
    },
    Situation {
        name: "kv-thrash-host",
        cause: "kv_thrash",
        says: "Host copies are dropped before they are used.",
        on: PY,
        change: |c| {
            c.load.prefixes = Some(Prefixes { families: 60, tokens: 2000 });
            c.cache.blocks = 800;
            c.cache.host_blocks = 300;
            c.load.output = Length::Fixed(30);
        },
        cure: "give the host tier more memory",
    },
];
