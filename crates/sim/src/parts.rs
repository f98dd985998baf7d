//! Where the time of each request truly went. The share of other requests in an iteration is computed from how
//! long the iteration would have taken without them.

use crate::cost::Work;
use crate::engine::Engine;
use crate::passes::Launched;
use crate::request::{Request, Share};

impl Engine {
    /// Adds a batch to the parts of the requests in the engine: the time since the batch before was handled, or since
    /// this one was formed if that is later. Called before the requests receive their tokens.
    pub(crate) fn record_parts(&mut self, launched: &Launched, now: f64) {
        let drafts = self.draft_seconds(&launched.batches);
        let from = launched.at.max(self.passes.handled_at);
        let costs = &self.config.costs;
        let seconds = |work: &Work| {
            let drafts = if work.generation_requests > 0 { drafts } else { 0.0 };
            costs.iteration_seconds(costs.host_seconds(work), costs.gpu_seconds(work) + drafts)
        };
        for (rank, batch) in self.ranks.iter_mut().zip(&launched.batches) {
            let work = &batch.work;
            let all = seconds(work);
            // The share of the iteration that the prompts of other requests take. `own` is the work on the request's
            // own prompt.
            let others = |own: Work| {
                let scheduled = work.scheduled - work.context_requests + own.context_requests;
                let Work { generation_requests, generation_tokens, generation_kv_tokens, .. } = *work;
                let without = Work { scheduled, generation_requests, generation_tokens, generation_kv_tokens, ..own };
                if scheduled > 0 { ((all - seconds(&without)) / all).max(0.0) } else { 1.0 }
            };
            let of_all = if work.context_requests > 0 { others(Work::default()) } else { 0.0 };
            for request in &mut rank.active {
                let Some(scheduled_at) = request.scheduled_at else { continue };
                let from = from.max(scheduled_at);
                let took = now - from;
                let share = request.shares[launched.slot];
                let phase = usize::from(request.first_token_at.is_some());
                let transfer = request.transfer.map_or(0.0, |(start, end)| (end.min(now) - start.max(from)).max(0.0));
                if phase == 1 && !share.decodes && request.filled < request.context {
                    request.parts.pause += took;
                    continue;
                }
                let took = took - transfer;
                let unexplained = launched.delay.min(took);
                let is_context = share.is_scheduled && !share.decodes;
                let share = if is_context { others(own_prompt(request, share)) } else { of_all };
                request.parts.unexplained[phase] += unexplained;
                request.parts.blocked[phase] += (took - unexplained) * share;
            }
        }
    }
}

fn own_prompt(request: &Request, share: Share) -> Work {
    let (chunk, filled) = (f64::from(share.filled), f64::from(request.filled));
    Work {
        context_requests: 1,
        context_tokens: share.filled.into(),
        attention_pairs: chunk * (filled + chunk / 2.0),
        context_kv_tokens: request.filled.into(),
        ..Work::default()
    }
}
