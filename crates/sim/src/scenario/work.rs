//! Situations caused by the work, the host, the ranks, transfers, the frontend, adapters or the load.

use super::{ALL, PY, Situation, V2, rate};
use crate::config::{Adapters, Role, Speculation};
use crate::load::{Arrivals, Length, Prefixes};

pub(super) const TABLE: &[Situation] = &[
    Situation {
        name: "context-work",
        cause: "context_work",
        says: "Long prompts and short answers: prefill is the work.",
        on: ALL,
        change: |c| {
            c.load.prompt = Length::Fixed(2500);
            c.load.output = Length::Fixed(20);
            rate(c, 8.5);
        },
        cure: "halve the requests of this engine with a second one",
    },
    Situation {
        name: "context-work-without-reuse",
        cause: "context_work",
        says: "All prompts begin alike, and block reuse is off.",
        on: ALL,
        change: |c| {
            c.load.prefixes = Some(Prefixes { families: 2, tokens: 2000 });
            c.cache.reuse = false;
            c.load.output = Length::Fixed(30);
        },
        cure: "turn block reuse on",
    },
    Situation {
        name: "context-blocking",
        cause: "context_blocking",
        says: "Prompts of 8000 tokens in one iteration stop all answers.",
        on: ALL,
        change: |c| {
            c.limits.max_num_tokens = 16384;
            c.load.prompt = Length::Mixed { short: 200, long: 8000, share: 0.06 };
        },
        cure: "lower max_num_tokens to 512 with chunked context",
    },
    Situation {
        name: "context-blocking-unchunked",
        cause: "context_blocking",
        says: "Without chunked context, prompts of 6000 tokens stop all answers.",
        on: ALL,
        change: |c| {
            c.limits.chunked_context = false;
            c.load.prompt = Length::Mixed { short: 200, long: 6000, share: 0.08 };
        },
        cure: "turn chunked context on with 1024 tokens",
    },
    Situation {
        name: "generation-work",
        cause: "generation_work",
        says: "Many long answers decode together.",
        on: ALL,
        change: |c| {
            c.load.output = Length::Fixed(500);
            c.costs.per_generation_token = 300e-6;
            c.limits.max_batch_size = 128;
            rate(c, 4.0);
        },
        cure: "halve the requests of this engine with a second one",
    },
    Situation {
        name: "generation-work-long-context",
        cause: "generation_work",
        says: "Reading the KV of long contexts is the work.",
        on: ALL,
        change: |c| {
            c.load.prompt = Length::Fixed(3000);
            c.load.output = Length::Fixed(400);
            c.costs.per_kv_token = 300e-9;
            c.costs.per_context_token = 10e-6;
            c.cache.blocks = 12000;
            rate(c, 2.5);
        },
        cure: "halve the requests of this engine with a second one",
    },
    Situation {
        name: "speculation",
        cause: "speculation",
        says: "One draft token in five is accepted; drafts cost more than they save.",
        on: PY,
        change: |c| c.speculation = Some(Speculation { draft_len: 6, acceptance: 0.2, seconds_per_position: 0.002 }),
        cure: "turn speculation off",
    },
    Situation {
        name: "speculation-big-batch",
        cause: "speculation",
        says: "Drafts are good, but checking them in a big batch is slow.",
        on: PY,
        change: |c| {
            c.speculation = Some(Speculation { draft_len: 6, acceptance: 0.5, seconds_per_position: 0.0002 });
            c.costs.per_generation_token = 200e-6;
            rate(c, 12.0);
        },
        cure: "turn speculation off",
    },
    Situation {
        name: "host",
        cause: "host",
        says: "The host needs 30 ms for each iteration.",
        on: ALL,
        change: |c| c.costs.host = 0.03,
        cure: "give the process more CPU",
    },
    Situation {
        name: "host-no-overlap",
        cause: "host",
        says: "The host prepares batches while the GPU waits.",
        on: PY,
        change: |c| {
            c.costs.host = 0.012;
            c.costs.overlap = false;
        },
        cure: "turn the overlap scheduler on",
    },
    Situation {
        name: "host-per-request",
        cause: "host",
        says: "Each request in the batch costs the host 2 ms.",
        on: ALL,
        change: |c| c.costs.host_per_request = 0.002,
        cure: "turn off what costs time for each request",
    },
    Situation {
        name: "ranks",
        cause: "ranks",
        says: "Routing sends most requests to one attention-DP rank.",
        on: &[V2],
        change: |c| {
            c.ranks.attention_dp = 4;
            c.ranks.imbalance = 0.8;
            c.limits.max_batch_size = 16;
            rate(c, 22.0);
        },
        cure: "route by load",
    },
    Situation {
        name: "ranks-pipeline",
        cause: "ranks",
        says: "One pipeline stage takes 2.5 times as long as the mean.",
        on: ALL,
        change: |c| {
            c.ranks.pipeline = 4;
            c.ranks.imbalance = 1.5;
        },
        cure: "divide the layers evenly",
    },
    Situation {
        name: "transfer",
        cause: "transfer",
        says: "The KV cache comes slowly from the context servers.",
        on: ALL,
        change: |c| {
            c.role = Role::GenerationOnly;
            c.transfer.bytes_per_second = 4e8;
        },
        cure: "use the fast network",
    },
    Situation {
        name: "transfer-latency",
        cause: "transfer",
        says: "Each transfer waits 0.12 s for its connection.",
        on: PY,
        change: |c| {
            c.role = Role::GenerationOnly;
            c.transfer.seconds = 0.12;
        },
        cure: "keep connections open",
    },
    Situation {
        name: "frontend",
        cause: "frontend",
        says: "Four tokenising workers are nearly always busy.",
        on: ALL,
        change: |c| c.frontend.seconds_per_request = 0.48,
        cure: "run more frontends",
    },
    Situation {
        name: "frontend-streaming",
        cause: "frontend",
        says: "Sending tokens keeps the frontend busy.",
        on: PY,
        change: |c| c.frontend.seconds_per_output_token = 0.0042,
        cure: "run more frontends",
    },
    Situation {
        name: "adapters",
        cause: "adapters",
        says: "40 adapters take turns in 4 slots.",
        on: ALL,
        change: |c| c.adapters = Some(Adapters { count: 40, slots: 4, load_seconds: 0.1 }),
        cure: "give adapters more memory",
    },
    Situation {
        name: "load",
        cause: "load",
        says: "Four times the requests that fit arrive.",
        on: ALL,
        change: |c| rate(c, 90.0),
        cure: "run four engines more",
    },
    Situation {
        name: "load-ramp",
        cause: "load",
        says: "The load grows until it does not fit.",
        on: PY,
        change: |c| c.load.arrivals = Arrivals::Ramp { from: 5.0, to: 90.0, seconds: 100.0 },
        cure: "add engines as the load grows",
    },
];
