//! Where the time of each request truly went. The share of other requests in an iteration is computed from how
//! long the iteration would have taken without them.

use crate::cost::Work;
use crate::engine::{Engine, Running};
use crate::request::Request;

impl Engine {
    /// Adds an iteration to the parts of the requests in the engine. Called before the requests receive their tokens.
    pub(crate) fn record_parts(&mut self, running: &Running) {
        let drafts = self.draft_seconds(&running.batches);
        let costs = &self.config.costs;
        let seconds = |work: &Work| {
            let drafts = if work.generation_requests > 0 { drafts } else { 0.0 };
            costs.together(costs.host_seconds(work), costs.gpu_seconds(work) + drafts)
        };
        let took = running.end - running.start;
        for (rank, batch) in self.ranks.iter_mut().zip(&running.batches) {
            let work = &batch.work;
            let all = seconds(work);
            // The share of the iteration that the prompts of other requests take. `own` is the work on the request's
            // own prompt.
            let others = |own: Work| {
                let scheduled = work.scheduled - work.context_requests + own.context_requests;
                let without = Work { scheduled, generation_requests: work.generation_requests, ..own };
                let without = Work {
                    generation_tokens: work.generation_tokens,
                    generation_kv_tokens: work.generation_kv_tokens,
                    ..without
                };
                if scheduled > 0 { ((all - seconds(&without)) / all).max(0.0) } else { 1.0 }
            };
            let of_all = if work.context_requests > 0 { others(Work::default()) } else { 0.0 };
            for request in rank.active.iter_mut().filter(|request| request.scheduled_at.is_some()) {
                let phase = usize::from(request.first_token_at.is_some());
                let transfer = request
                    .transfer
                    .map_or(0.0, |(start, end)| (end.min(running.end) - start.max(running.start)).max(0.0));
                if phase == 1 && request.filled < request.context {
                    request.parts.pause += took;
                    continue;
                }
                let took = took - transfer;
                let unexplained = running.delay.min(took);
                let share = if request.chunk > 0 { others(own_prompt(request)) } else { of_all };
                request.parts.unexplained[phase] += unexplained;
                request.parts.blocked[phase] += (took - unexplained) * share;
            }
        }
    }
}

fn own_prompt(request: &Request) -> Work {
    let (chunk, filled) = (f64::from(request.chunk), f64::from(request.filled));
    Work {
        context_requests: 1,
        context_tokens: request.chunk.into(),
        attention_pairs: chunk * (filled + chunk / 2.0),
        context_kv_tokens: request.filled.into(),
        ..Work::default()
    }
}
