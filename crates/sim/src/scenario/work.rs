//! Situations caused by the work, the host, the ranks, transfers, the frontend, adapters or the load.

use super::{ALL, PY, Situation, V2, rate, situation};
use crate::config::{Adapters, Role, Speculation};
use crate::load::{Arrivals, Length, Prefixes};

pub(super) const TABLE: &[Situation] = &[
    situation("context-work", ALL, "Long prompts and short answers: prefill is the work.", |c| {
        c.load.prompt = Length::Fixed(2500);
        c.load.output = Length::Fixed(20);
        rate(c, 8.5);
    })
    .trouble("context_work", "halve the requests of this engine with a second one"),
    situation("context-work-without-reuse", ALL, "All prompts begin alike, and block reuse is off.", |c| {
        c.load.prefixes = Some(Prefixes { families: 2, tokens: 2000 });
        c.cache.reuse = false;
        c.load.output = Length::Fixed(30);
    })
    .trouble("context_work", "turn block reuse on"),
    situation("context-blocking", ALL, "Prompts of 8000 tokens in one iteration stop all answers.", |c| {
        c.limits.max_num_tokens = 16384;
        c.load.prompt = Length::Mixed { short: 200, long: 8000, share: 0.06 };
    })
    .trouble("context_blocking", "lower max_num_tokens to 512 with chunked context"),
    situation(
        "context-blocking-unchunked",
        ALL,
        "Without chunked context, prompts of 6000 tokens stop all answers.",
        |c| {
            c.limits.chunked_context = false;
            c.load.prompt = Length::Mixed { short: 200, long: 6000, share: 0.08 };
        },
    )
    .trouble("context_blocking", "turn chunked context on with 1024 tokens"),
    situation("generation-work", ALL, "Many long answers decode together.", |c| {
        c.load.output = Length::Fixed(500);
        c.costs.per_generation_token = 300e-6;
        c.limits.max_batch_size = 128;
        rate(c, 4.0);
    })
    .trouble("generation_work", "halve the requests of this engine with a second one"),
    situation("generation-work-long-context", ALL, "Reading the KV of long contexts is the work.", |c| {
        c.load.prompt = Length::Fixed(3000);
        c.load.output = Length::Fixed(400);
        c.costs.per_kv_token = 300e-9;
        c.costs.per_context_token = 10e-6;
        c.cache.blocks = 12000;
        rate(c, 2.5);
    })
    .trouble("generation_work", "halve the requests of this engine with a second one"),
    situation("speculation", PY, "One draft token in five is accepted; drafts cost more than they save.", |c| {
        c.speculation = Some(Speculation { draft_len: 6, acceptance: 0.2, seconds_per_position: 0.002 })
    })
    .trouble("speculation", "turn speculation off"),
    situation("speculation-big-batch", PY, "Drafts are good, but checking them in a big batch is slow.", |c| {
        c.speculation = Some(Speculation { draft_len: 6, acceptance: 0.5, seconds_per_position: 0.0002 });
        c.costs.per_generation_token = 200e-6;
        rate(c, 12.0);
    })
    .trouble("speculation", "turn speculation off"),
    situation("host", ALL, "The host needs 30 ms for each iteration.", |c| c.costs.host = 0.03)
        .trouble("host", "give the process more CPU"),
    situation("host-no-overlap", PY, "The host prepares batches while the GPU waits.", |c| {
        c.costs.host = 0.012;
        c.costs.overlap = false;
    })
    .trouble("host", "turn the overlap scheduler on"),
    situation("host-per-request", ALL, "Each request in the batch costs the host 2 ms.", |c| {
        c.costs.host_per_request = 0.002
    })
    .trouble("host", "turn off what costs time for each request"),
    situation("ranks", &[V2], "Routing sends most requests to one attention-DP rank.", |c| {
        c.ranks.attention_dp = 4;
        c.ranks.imbalance = 0.8;
        c.limits.max_batch_size = 16;
        rate(c, 22.0);
    })
    .trouble("ranks", "route by load"),
    situation("ranks-pipeline", ALL, "One pipeline stage takes 2.5 times as long as the mean.", |c| {
        c.ranks.pipeline = 4;
        c.ranks.imbalance = 1.5;
    })
    .trouble("ranks", "divide the layers evenly"),
    situation("transfer", ALL, "The KV cache comes slowly from the context servers.", |c| {
        c.role = Role::GenerationOnly;
        c.transfer.bytes_per_second = 4e8;
    })
    .trouble("transfer", "use the fast network"),
    situation("transfer-latency", PY, "Each transfer waits 0.12 s for its connection.", |c| {
        c.role = Role::GenerationOnly;
        c.transfer.seconds = 0.12;
    })
    .trouble("transfer", "keep connections open"),
    situation("frontend", ALL, "Four tokenising workers are nearly always busy.", |c| {
        c.frontend.seconds_per_request = 0.48
    })
    .trouble("frontend", "run more frontends"),
    situation("frontend-streaming", PY, "Sending tokens keeps the frontend busy.", |c| {
        c.frontend.seconds_per_output_token = 0.0042
    })
    .trouble("frontend", "run more frontends"),
    situation("adapters", ALL, "40 adapters take turns in 4 slots.", |c| {
        c.adapters = Some(Adapters { count: 40, slots: 4, load_seconds: 0.1 })
    })
    .trouble("adapters", "give adapters more memory"),
    situation("load", ALL, "Four times the requests that fit arrive.", |c| rate(c, 90.0))
        .trouble("load", "run four engines more"),
    situation("load-ramp", PY, "The load grows until it does not fit.", |c| {
        c.load.arrivals = Arrivals::Ramp { from: 5.0, to: 90.0, seconds: 100.0 }
    })
    .trouble("load", "add engines as the load grows"),
];
