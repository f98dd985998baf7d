//! trtllm-serve's own page, /prometheus/metrics.

use std::collections::BTreeMap;

use trtllm_sim::config::Release;
use trtllm_sim::record::{Entry, Record};

use crate::families::{Buckets, Histogram, Text};
use crate::live::reason;
use crate::options::is_since_1_3;

/// What one process has counted.
#[derive(Debug)]
pub(crate) struct ServerPage {
    ended: BTreeMap<&'static str, u64>,
    prompt_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    e2e: Histogram,
    first_token: Histogram,
    per_token: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    inference: Histogram,
}

impl Default for ServerPage {
    fn default() -> Self {
        let long = Histogram::new(Buckets::Long);
        Self {
            ended: BTreeMap::new(),
            prompt_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            first_token: Histogram::new(Buckets::Short),
            per_token: Histogram::new(Buckets::Token),
            e2e: long.clone(),
            queue: long.clone(),
            prefill: long.clone(),
            decode: long.clone(),
            inference: long,
        }
    }
}

impl ServerPage {
    pub(crate) fn add(&mut self, entry: &Entry, tokens_per_block: u32) {
        *self.ended.entry(reason(entry.end)).or_default() += 1;
        self.prompt_tokens += u64::from(entry.prompt_tokens);
        self.cached_tokens += (entry.counts.reused() * u64::from(tokens_per_block)).min(u64::from(entry.prompt_tokens));
        self.output_tokens += u64::from(entry.output_tokens);
        self.e2e.observe(entry.last_token - entry.arrival, 1);
        self.first_token.observe(entry.first_token - entry.arrival, 1);
        if entry.output_tokens > 1 {
            let tokens = f64::from(entry.output_tokens - 1);
            self.per_token.observe((entry.last_token - entry.first_token) / tokens, 1);
        }
        self.queue.observe(entry.first_scheduled - entry.arrival, 1);
        self.prefill.observe(entry.first_token - entry.first_scheduled, 1);
        self.decode.observe(entry.last_token - entry.first_token, 1);
        self.inference.observe(entry.last_token - entry.first_scheduled, 1);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (reason, count) in &other.ended {
            *self.ended.entry(reason).or_default() += count;
        }
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.output_tokens += other.output_tokens;
        for (histogram, more) in [
            (&mut self.e2e, &other.e2e),
            (&mut self.first_token, &other.first_token),
            (&mut self.per_token, &other.per_token),
            (&mut self.queue, &other.queue),
            (&mut self.prefill, &other.prefill),
            (&mut self.decode, &other.decode),
            (&mut self.inference, &other.inference),
        ] {
            histogram.merge(more);
        }
    }

    /// Before 1.3 there are five families without a prefix.
    pub(crate) fn text(&self, release: Release, model: &str, last: &Record) -> String {
        let is_new = is_since_1_3(release);
        let prefix = if is_new { "trtllm_" } else { "" };
        let (kind, model) = if is_new { ("pytorch", model) } else { ("undefined", "undefined") };
        let mut text = Text::new(format!("engine_type=\"{kind}\",model_name=\"{model}\""));
        let name = |name: &str| format!("{prefix}{name}");
        let ended: Vec<_> =
            self.ended.iter().map(|(reason, count)| (format!("finished_reason=\"{reason}\""), *count)).collect();
        let ended: Vec<_> = ended.iter().map(|(label, count)| (label.as_str(), *count)).collect();
        text.counter(&name("request_success"), &ended);
        text.histogram(&name("e2e_request_latency_seconds"), &self.e2e);
        text.histogram(&name("time_to_first_token_seconds"), &self.first_token);
        text.histogram(&name("time_per_output_token_seconds"), &self.per_token);
        text.histogram(&name("request_queue_time_seconds"), &self.queue);
        if is_new {
            text.histogram("trtllm_request_prefill_time_seconds", &self.prefill);
            text.histogram("trtllm_request_decode_time_seconds", &self.decode);
            text.histogram("trtllm_request_inference_time_seconds", &self.inference);
            text.counter("trtllm_prompt_tokens", &[("", self.prompt_tokens)]);
            text.counter("trtllm_prompt_cached_tokens", &[("", self.cached_tokens)]);
            text.counter("trtllm_generation_tokens", &[("", self.output_tokens)]);
            text.gauge("trtllm_scheduled_batch_size", "pid=\"1\",rank=\"0\"", f64::from(last.work.scheduled));
            let used = f64::from(last.cache.max - last.cache.free) / f64::from(last.cache.max.max(1));
            text.gauge("trtllm_kv_cache_utilization", "pid=\"1\"", used);
        }
        text.into_text()
    }
}
