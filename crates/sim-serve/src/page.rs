//! trtllm-serve's own page, /prometheus/metrics.

use std::collections::BTreeMap;

use trtllm_sim::End;
use trtllm_sim::config::Release;
use trtllm_sim::record::{Entry, Record};

use crate::families::{FIRST_TOKEN, Histogram, PER_TOKEN, REQUEST, Text};

/// A histogram: its name, its buckets, whether it exists only since 1.3, and its value in seconds for a request.
type Family = (&'static str, &'static [f64], bool, fn(&Entry) -> Option<f64>);

const FAMILIES: [Family; 7] = [
    ("e2e_request_latency_seconds", REQUEST, false, |entry| Some(entry.last_token - entry.arrival)),
    ("time_to_first_token_seconds", FIRST_TOKEN, false, |entry| Some(entry.first_token - entry.arrival)),
    ("time_per_output_token_seconds", PER_TOKEN, false, |entry| {
        let gaps = entry.output_tokens.checked_sub(1).filter(|gaps| *gaps > 0)?;
        Some((entry.last_token - entry.first_token) / f64::from(gaps))
    }),
    ("request_queue_time_seconds", REQUEST, false, |entry| Some(entry.first_scheduled - entry.arrival)),
    ("request_prefill_time_seconds", REQUEST, true, |entry| Some(entry.first_token - entry.first_scheduled)),
    ("request_decode_time_seconds", REQUEST, true, |entry| Some(entry.last_token - entry.first_token)),
    ("request_inference_time_seconds", REQUEST, true, |entry| Some(entry.last_token - entry.first_scheduled)),
];

/// What one frontend process has counted.
#[derive(Debug)]
pub(crate) struct ServerPage {
    /// Ended requests, by the label with their finish reason.
    ended: BTreeMap<String, u64>,
    prompt_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    /// In the order of [`FAMILIES`].
    histograms: [Histogram; FAMILIES.len()],
}

impl Default for ServerPage {
    fn default() -> Self {
        Self {
            ended: BTreeMap::new(),
            prompt_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            histograms: FAMILIES.map(|(_, bounds, ..)| Histogram::new(bounds)),
        }
    }
}

impl ServerPage {
    pub(crate) fn add(&mut self, entry: &Entry, tokens_per_block: u32, release: Release) {
        *self.ended.entry(format!("finished_reason=\"{}\"", reason(entry, release))).or_default() += 1;
        self.prompt_tokens += u64::from(entry.prompt_tokens);
        self.cached_tokens += (entry.counts.reused() * u64::from(tokens_per_block)).min(u64::from(entry.prompt_tokens));
        self.output_tokens += u64::from(entry.output_tokens);
        for (histogram, (.., seconds)) in self.histograms.iter_mut().zip(FAMILIES) {
            if let Some(seconds) = seconds(entry) {
                histogram.observe(seconds, 1);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (label, count) in &other.ended {
            *self.ended.entry(label.clone()).or_default() += count;
        }
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.output_tokens += other.output_tokens;
        for (histogram, more) in self.histograms.iter_mut().zip(&other.histograms) {
            histogram.merge(more);
        }
    }

    /// Releases before 1.3 have only five families, whose names have no prefix.
    pub(crate) fn text(&self, release: Release, model: &str, last: &Record) -> String {
        // Since 1.3, names begin with `trtllm_`.
        let is_new = release.is_since_1_3();
        let prefix = if is_new { "trtllm_" } else { "" };
        let (kind, model) = if is_new { ("pytorch", model) } else { ("undefined", "undefined") };
        let mut text = Text::new(format!("engine_type=\"{kind}\",model_name=\"{model}\""));
        let ended: Vec<_> = self.ended.iter().map(|(label, count)| (label.as_str(), *count)).collect();
        text.counter(&format!("{prefix}request_success"), &ended);
        for (histogram, (name, _, is_since_1_3, _)) in self.histograms.iter().zip(FAMILIES) {
            if is_new || !is_since_1_3 {
                text.histogram(&format!("{prefix}{name}"), histogram);
            }
        }
        if is_new {
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

/// Why a request ended, in upstream's words.
pub(crate) fn reason(entry: &Entry, release: Release) -> &'static str {
    match entry.end {
        _ if entry.continued && release.is_since_1_3() => "not_finished",
        End::Stop => "stop",
        End::Length => "length",
        End::TimedOut => "timeout",
        End::Cancelled => "cancelled",
        End::Error => "error",
    }
}
