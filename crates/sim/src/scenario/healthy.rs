//! Healthy engines of many kinds. Their cause is `none`.

use super::{CPP, On, V1, V2, rate};
use crate::config::{Adapters, Config, Policy, Role, Speculation};
use crate::cost::Experts;
use crate::load::{Arrivals, Length, Prefixes};

/// Name, backend, description, and the change to the default engine.
type Healthy = (&'static str, On, &'static str, fn(&mut Config));

pub(super) const TABLE: &[Healthy] = &[
    ("default", V2, "A moderate load.", |_| {}),
    ("default-v1", V1, "A moderate load.", |_| {}),
    ("default-cpp", CPP, "A moderate load.", |_| {}),
    ("light", V2, "A request now and then.", |c| rate(c, 0.3)),
    ("short-answers", V2, "Short answers, one after the other. Passes without a batch take numbers.", |c| {
        c.load.output = Length::Fixed(3);
        rate(c, 2.0);
    }),
    ("short-answers-v1", V1, "Short answers, one after the other. Passes without a batch take numbers.", |c| {
        c.load.output = Length::Fixed(3);
        rate(c, 2.0);
    }),
    ("light-cpp", CPP, "A request now and then.", |c| rate(c, 0.3)),
    ("idle", V2, "Nobody sends anything.", |c| c.load.arrivals = Arrivals::Submitted),
    ("busy", V2, "Much load that fits.", |c| rate(c, 16.0)),
    ("busy-cpp", CPP, "Much load that fits.", |c| rate(c, 16.0)),
    ("bursts", V2, "Bursts of five.", |c| c.load.arrivals = Arrivals::Bursty { rate: 6.0, burst: 5 }),
    ("day", V1, "The load follows the day.", |c| {
        c.load.arrivals = Arrivals::Day { mean: 8.0, swing: 0.6, period: 600.0 }
    }),
    ("ramp", V2, "The load grows and fits.", |c| {
        c.load.arrivals = Arrivals::Ramp { from: 1.0, to: 14.0, seconds: 120.0 }
    }),
    ("chat", V2, "Conversations whose blocks are used again.", |c| {
        c.load.turns = 6;
        c.load.think = 3.0;
        rate(c, 1.0);
    }),
    ("prefixes", V2, "Four prefixes that stay in the cache.", |c| {
        c.load.prefixes = Some(Prefixes { families: 4, tokens: 1500 })
    }),
    ("prefixes-v1", V1, "Four prefixes that stay in the cache.", |c| {
        c.load.prefixes = Some(Prefixes { families: 4, tokens: 1500 })
    }),
    ("no-shared-prompts", V2, "Prompts share nothing, so nothing can be reused.", |c| rate(c, 10.0)),
    ("speculation", V2, "Drafts that are accepted.", |c| {
        c.speculation = Some(Speculation { draft_len: 4, acceptance: 0.8, seconds_per_position: 0.0003 })
    }),
    ("speculation-short", V2, "An acceptance length near two with little overhead.", |c| {
        c.speculation = Some(Speculation { draft_len: 3, acceptance: 0.6, seconds_per_position: 0.0004 })
    }),
    ("host-tier", V2, "The host keeps what the GPU evicts.", |c| {
        c.load.prefixes = Some(Prefixes { families: 20, tokens: 1500 });
        c.cache.blocks = 700;
        c.cache.host_blocks = 4000;
        rate(c, 4.0);
    }),
    ("ranks", V2, "Four balanced attention-DP ranks.", |c| {
        c.ranks.attention_dp = 4;
        rate(c, 20.0);
    }),
    ("pipeline-cpp", CPP, "A balanced pipeline of four stages.", |c| c.ranks.pipeline = 4),
    ("generation-server", V2, "A generation server with a fast link.", |c| c.role = Role::GenerationOnly),
    ("context-server", V2, "A context server with a fast link.", |c| c.role = Role::ContextOnly),
    ("adapters", V2, "Eight adapters in eight slots.", |c| {
        c.adapters = Some(Adapters { count: 8, slots: 8, load_seconds: 0.1 })
    }),
    ("cancellations", V2, "Clients or stop strings cancel 45 % of the requests. That is not an error.", |c| {
        c.load.cancelled_share = 0.45
    }),
    ("max-utilization-cpp", CPP, "MAX_UTILIZATION with room.", |c| c.limits.policy = Policy::MaxUtilization),
    ("experts", V2, "A model of experts.", |c| {
        c.costs.experts = Some(Experts { count: 64, per_token: 4, seconds: 50e-6 })
    }),
    ("sampled", V2, "A record in each tenth iteration.", |c| c.statistics.interval = 10),
    ("long-tail", V2, "Few long prompts in small chunks.", |c| {
        c.limits.max_num_tokens = 1024;
        c.load.prompt = Length::Mixed { short: 200, long: 4000, share: 0.02 };
    }),
    ("full-cache-of-reusable-blocks", V2, "All blocks hold reusable content, none is needed.", |c| {
        c.cache.blocks = 1200;
        rate(c, 5.0);
    }),
];
