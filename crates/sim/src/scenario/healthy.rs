//! Healthy engines of many kinds.

use super::{ALL, CPP, On, PY, Situation, V1, V2, rate, situation};
use crate::config::{Adapters, Policy, Role, Speculation};
use crate::cost::Experts;
use crate::load::{Arrivals, Length, Prefixes};

pub(super) const TABLE: &[Situation] = &[
    situation("healthy-default", ALL, "A moderate load.", |_| {}),
    situation("healthy-light", &[V2, CPP], "A request now and then.", |c| rate(c, 0.3)),
    situation(
        "healthy-short-answers",
        PY,
        "Short answers, one after the other. Passes without a batch take numbers.",
        |c| {
            c.load.output = Length::Fixed(3);
            rate(c, 2.0);
        },
    ),
    situation("healthy-idle", &[V2], "Nobody sends anything.", |c| c.load.arrivals = Arrivals::Submitted),
    situation("healthy-busy", &[V2, CPP], "Much load that fits.", |c| rate(c, 16.0)),
    situation("healthy-bursts", &[V2], "Bursts of five.", |c| {
        c.load.arrivals = Arrivals::Bursty { rate: 6.0, burst: 5 }
    }),
    // Users know it without the suffix of its backend.
    situation("healthy-day", &[On { suffix: "", ..V1 }], "The load follows the day.", |c| {
        c.load.arrivals = Arrivals::Day { mean: 8.0, swing: 0.6, period: 600.0 }
    }),
    situation("healthy-ramp", &[V2], "The load grows and fits.", |c| {
        c.load.arrivals = Arrivals::Ramp { from: 1.0, to: 14.0, seconds: 120.0 }
    }),
    situation("healthy-chat", &[V2], "Conversations whose blocks are used again.", |c| {
        c.load.turns = 6;
        c.load.think = 3.0;
        rate(c, 1.0);
    }),
    situation("healthy-prefixes", PY, "Four prefixes that stay in the cache.", |c| {
        c.load.prefixes = Some(Prefixes { families: 4, tokens: 1500 })
    }),
    situation("healthy-no-shared-prompts", &[V2], "Prompts share nothing, so nothing can be reused.", |c| {
        rate(c, 10.0)
    }),
    situation("healthy-speculation", &[V2], "Drafts that are accepted.", |c| {
        c.speculation = Some(Speculation { draft_len: 4, acceptance: 0.8, seconds_per_position: 0.0003 })
    }),
    situation("healthy-speculation-short", &[V2], "An acceptance length near two with little overhead.", |c| {
        c.speculation = Some(Speculation { draft_len: 3, acceptance: 0.6, seconds_per_position: 0.0004 })
    }),
    situation("healthy-host-tier", &[V2], "The host keeps what the GPU evicts.", |c| {
        c.load.prefixes = Some(Prefixes { families: 20, tokens: 1500 });
        c.cache.blocks = 700;
        c.cache.host_blocks = 4000;
        rate(c, 4.0);
    }),
    situation("healthy-ranks", &[V2], "Four balanced attention-DP ranks.", |c| {
        c.ranks.attention_dp = 4;
        rate(c, 20.0);
    }),
    situation("healthy-pipeline", &[CPP], "A balanced pipeline of four stages.", |c| c.ranks.pipeline = 4),
    situation("healthy-generation-server", &[V2], "A generation server with a fast link.", |c| {
        c.role = Role::GenerationOnly
    }),
    situation("healthy-context-server", &[V2], "A context server with a fast link.", |c| c.role = Role::ContextOnly),
    situation("healthy-adapters", &[V2], "Eight adapters in eight slots.", |c| {
        c.adapters = Some(Adapters { count: 8, slots: 8, load_seconds: 0.1 })
    }),
    situation(
        "healthy-cancellations",
        &[V2],
        "Clients or stop strings cancel 45 % of the requests. That is not an error.",
        |c| c.load.cancelled_share = 0.45,
    ),
    situation("healthy-max-utilization", &[CPP], "MAX_UTILIZATION with room.", |c| {
        c.limits.policy = Policy::MaxUtilization
    }),
    situation("healthy-experts", &[V2], "A model of experts.", |c| {
        c.costs.experts = Some(Experts { count: 64, per_token: 4, seconds: 50e-6 })
    }),
    situation("healthy-sampled", &[V2], "A record in each tenth iteration.", |c| c.statistics.interval = 10),
    situation("healthy-long-tail", &[V2], "Few long prompts in small chunks.", |c| {
        c.limits.max_num_tokens = 1024;
        c.load.prompt = Length::Mixed { short: 200, long: 4000, share: 0.02 };
    }),
    situation(
        "healthy-full-cache-of-reusable-blocks",
        &[V2],
        "All blocks hold reusable content, none is needed.",
        |c| {
            c.cache.blocks = 1200;
            rate(c, 5.0);
        },
    ),
];
