//! Situations caused by the limits and by the KV cache.

use super::{ALL, CPP, OLD_CPP, PY, RESERVING, Situation, rate, situation};
use crate::config::Policy;
use crate::load::{Arrivals, Length, Prefixes};

pub(super) const TABLE: &[Situation] = &[
    situation("batch-limit", ALL, "More requests arrive than max_batch_size lets decode together.", |c| {
        c.limits.max_batch_size = 8;
        rate(c, 12.0);
    })
    .trouble("batch_limit", "raise max_batch_size to 64"),
    situation("batch-limit-closed-loop", ALL, "64 clients share 16 slots.", |c| {
        c.limits.max_batch_size = 16;
        c.load.arrivals = Arrivals::Closed { concurrency: 64 };
        c.load.think = 0.0;
    })
    .trouble("batch_limit", "raise max_batch_size to 64"),
    situation("batch-limit-bursts", PY, "Bursts of 40 requests meet 8 slots.", |c| {
        c.limits.max_batch_size = 8;
        c.load.arrivals = Arrivals::Bursty { rate: 6.0, burst: 40 };
    })
    .trouble("batch_limit", "raise max_batch_size to 64"),
    situation("token-limit", ALL, "max_num_tokens leaves room for one block of context in an iteration.", |c| {
        c.limits.max_num_tokens = 64;
        rate(c, 10.0);
    })
    .trouble("token_limit", "raise max_num_tokens to 8192"),
    situation("token-limit-long-prompts", ALL, "Prompts of 2000 tokens are computed 96 tokens at a time.", |c| {
        c.limits.max_num_tokens = 96;
        c.load.prompt = Length::Fixed(2000);
        rate(c, 3.0);
    })
    .trouble("token_limit", "raise max_num_tokens to 2048"),
    situation(
        "static-batching",
        &[CPP, OLD_CPP],
        "A batch runs until its longest answer ends; its other slots stay empty.",
        |c| {
            c.limits.policy = Policy::Static;
            c.load.output = Length::Mixed { short: 20, long: 600, share: 0.1 };
            c.limits.max_batch_size = 32;
        },
    )
    .trouble("static_batching", "use in-flight batching"),
    situation("static-batching-offline", &[CPP, OLD_CPP], "An offline job in static batches of 16.", |c| {
        c.limits.policy = Policy::Static;
        c.limits.max_batch_size = 16;
        c.load.arrivals = Arrivals::Offline { requests: 4000 };
        c.load.output = Length::Mixed { short: 20, long: 400, share: 0.2 };
    })
    .trouble("static_batching", "use in-flight batching"),
    situation("kv-capacity", ALL, "The KV cache is full: requests wait for blocks.", |c| {
        c.cache.blocks = 110;
        c.cache.reuse = false;
    })
    .trouble("kv_capacity", "give the KV cache more memory"),
    situation(
        "kv-capacity-prompts",
        ALL,
        "Each prompt takes a third of the KV cache, and its blocks are free again before the record is written.",
        |c| {
            c.cache.blocks = 13;
            c.cache.reuse = false;
            // Four blocks each.
            c.load.prompt = Length::Sample((97..128).collect());
            (c.load.output, c.load.max_new_tokens) = (Length::Fixed(1), Some(1));
            c.load.arrivals = Arrivals::Closed { concurrency: 120 };
            c.load.think = 0.0;
        },
    )
    .trouble("kv_capacity", "give the KV cache more memory"),
    situation("kv-pauses", ALL, "MAX_UTILIZATION pauses requests and computes them again.", |c| {
        c.cache.blocks = 160;
        c.cache.reuse = false;
        c.limits.policy = Policy::MaxUtilization;
        c.load.output = Length::Fixed(300);
        rate(c, 5.0);
    })
    .trouble("kv_capacity", "give the KV cache more memory"),
    situation(
        "kv-reservation",
        RESERVING,
        "Clients ask for 4000 tokens and get 100; the policy keeps blocks for 4000.",
        |c| {
            c.load.max_new_tokens = Some(4000);
            c.cache.blocks = 700;
        },
    )
    .trouble("kv_reservation", "use MAX_UTILIZATION"),
    situation(
        "kv-reservation-by-clients",
        RESERVING,
        "A client library sets max_tokens to 8000 in each request.",
        |c| {
            c.load.max_new_tokens = Some(8000);
            c.cache.blocks = 1500;
        },
    )
    .trouble("kv_reservation", "let clients ask for what they need"),
    situation(
        "kv-thrash",
        ALL,
        "40 shared prefixes do not fit in the cache: blocks are evicted before they are used again.",
        |c| {
            c.load.prefixes = Some(Prefixes { families: 40, tokens: 2000 });
            c.cache.blocks = 900;
            c.load.output = Length::Fixed(30);
        },
    )
    .trouble("kv_thrash", "give the KV cache more memory"),
    situation("kv-thrash-conversations", PY, "Conversations come back after their blocks are gone.", |c| {
        c.load.turns = 8;
        c.load.think = 12.0;
        c.load.prompt = Length::Fixed(500);
        c.load.output = Length::Fixed(60);
        c.cache.blocks = 1500;
        rate(c, 1.0);
    })
    .trouble("kv_thrash", "keep evicted blocks on the host"),
    situation("kv-thrash-host", PY, "Host copies are dropped before they are used.", |c| {
        c.load.prefixes = Some(Prefixes { families: 60, tokens: 2000 });
        c.cache.blocks = 800;
        c.cache.host_blocks = 300;
        c.load.output = Length::Fixed(30);
    })
    .trouble("kv_thrash", "give the host tier more memory"),
];
