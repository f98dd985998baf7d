//! The iteration log of the PyTorch engine (`print_iter_log`): a line for each pass of its loop. Source: `_profiler` in
//! upstream's py_executor.py; which release has which member is known from the dates of real lines.

use super::iteration::timestamp;
use crate::config::Era;
use crate::record::Record;

/// What the lines of rank 0 tell besides its records.
#[derive(Debug, Default)]
pub struct IterationLog {
    /// The record whose pass is not timed yet. Without the overlap scheduler, the next record has its times.
    last: Option<Record>,
    iter: u64,
    /// Requests since the start.
    fetched: u64,
}

impl IterationLog {
    /// The lines that this record completes. `epoch_us` as for [`record`](super::record).
    #[must_use]
    pub fn lines(&mut self, record: &Record, era: Era, epoch_us: i64) -> String {
        // Only rank 0 writes lines unless the server has TLLM_PROFILE_LOG_RANKS.
        if record.rank.is_some_and(|rank| rank > 0) {
            return String::new();
        }
        let next = (!record.overlap).then(|| record.clone());
        let last = std::mem::replace(&mut self.last, next);
        let Some(pass) = (if record.overlap { Some(record) } else { last.as_ref() }) else { return String::new() };
        let mut lines = String::new();
        // A pass without a batch has a line and no record.
        for iter in self.iter + 1..pass.iter {
            lines +=
                &self.line(&Record { iter, work: crate::cost::Work::default(), ..pass.clone() }, None, era, epoch_us);
        }
        (self.iter, self.fetched) = (pass.iter, self.fetched + u64::from(pass.new_active));
        let has_times = record.overlap || record.iter == pass.iter + 1;
        lines + &self.line(pass, has_times.then_some(record), era, epoch_us)
    }

    /// `times`: the record with the times of the pass.
    fn line(&self, pass: &Record, times: Option<&Record>, era: Era, epoch_us: i64) -> String {
        let (host, device) = times.map_or((1e-3, 0.0), |times| (times.host_seconds, times.previous_device_seconds));
        let device = if device > 0.0 { format!("{}ms", device * 1e3) } else { "N/A".to_owned() };
        let (work, cache) = (&pass.work, &pass.cache);
        // MM-DD-YYYY HH:MM:SS.
        let at = timestamp(epoch_us + (pass.at * 1e6) as i64);
        let (date, time) = (format!("{}-{}", &at[6..10], &at[..5]), &at[11..19]);
        let (scheduled, new) = (work.scheduled, pass.new_active);
        let requests = format!("currank_total_requests = {}/{}", self.own(pass), self.fetched);
        let host = match era {
            Era::Early => format!("elapsed_time = {host}s"),
            _ => format!("host_step_time = {}ms, prev_device_step_time = {device}", host * 1e3),
        };
        let states = format!(
            "'num_ctx_requests': {}, 'num_ctx_tokens': {}, 'num_generation_tokens': {}",
            work.context_requests, work.context_tokens, work.generation_tokens
        );
        let begin = format!("iter = {}, global_rank = 0, rank = 0", pass.iter);
        if era < Era::Ranks {
            return format!(
                "[{}/{}/{}-{time}] [TRT-LLM] [I] {begin}, {requests}, {host}, timestamp = {date} {time}, num_scheduled_requests: \
                 {scheduled}, states = {{{states}}}\n",
                &at[..2],
                &at[3..5],
                &at[6..10]
            );
        }
        let used = 1.0 - f64::from(cache.free) / f64::from(cache.max.max(1));
        let cached = work.context_kv_tokens + work.generation_kv_tokens;
        let waiting = pass.active.saturating_sub(scheduled);
        let end = match era {
            Era::Frames => format!(
                ", num_active = {}, num_fetched = {new}, num_dummy = 0, num_unscheduled = {waiting}",
                pass.active
            ),
            _ => String::new(),
        };
        format!(
            "[TRT-LLM] [I] [_torch][RANK 0] {begin}, num_scheduled_requests = {scheduled}, kv_cache_util = {used:.3}, \
             {requests}, {host}, timestamp = {date} {time}, states = {{{states}, 'cached_kv_tokens': {cached}}}{end}\n"
        )
    }

    /// Requests of this rank. Only attention data parallelism counts them.
    fn own(&self, pass: &Record) -> u64 {
        if pass.rank.is_some() { self.fetched } else { 0 }
    }
}
