//! vLLM's families (`--metrics.compat vllm`), so that autoscalers, cost tools and dashboards written for vLLM work. The
//! reference page (`src/tools/metrics.md`) lists the families that are missing here because TensorRT-LLM's statistics
//! lack their values.

use trtllm_records::perf_metrics::FinishReason;
use trtllm_records::server_metrics::ConfigSection;

use super::{EngineView, FamilyWriter, Id, Metric, When, families, seen};

const VLLM: Metric = Metric::compat("vllm", &["engine", "model_name"]);

families! {
    Vllm of EngineView<'_> => FamilyWriter<'_>;

    VllmRunning(|engine| engine.load?.active_of_all()) = VLLM.gauge("vllm:num_requests_running")
        .help("Number of requests that the engine has admitted.").feeds("numActiveRequests");
    VllmWaiting(|engine| engine.load?.all_waiting_rounded()) = VLLM.gauge("vllm:num_requests_waiting")
        .help("Number of requests that wait for a seat or for their batch.").like(Id::WaitingRequestsEstimate);
    VllmKvCacheUsage(|engine| engine.kv_cache_utilization()) = VLLM.gauge("vllm:kv_cache_usage_perc")
        .help("Share (0-1) of KV cache blocks in use.").feeds("usedNumBlocks maxNumBlocks");
    VllmCacheConfig(|engine, series| {
        // A router treats an engine as fresh while it finds any of these families, so this one disappears with the
        // load. Readers multiply the block size by the number of blocks. With several pool groups the product would not
        // be the capacity, so the family is absent.
        let load = engine.load.filter(|load| load.pools.groups.is_none_or(|groups| groups <= 1))?;
        let (block_size, blocks) = (load.kv?.tokens_per_block?, load.kv?.max_num_blocks?);
        let mut config = engine.requests.server.config.get(&ConfigSection::KvCache).into_iter().flatten();
        let reuse = config.find(|(name, _)| name == "enable_block_reuse").map(|(_, value)| value.clone());
        // vLLM's own text for a setting without a value.
        let reuse = reuse.unwrap_or_else(|| "None".to_owned());
        let labels = [
            ("block_size", block_size.to_string()),
            ("enable_prefix_caching", reuse),
            ("num_gpu_blocks", blocks.to_string()),
        ];
        series.with(labels, 1_u64)
    }) = VLLM.gauge("vllm:cache_config_info")
        .labels(&["block_size", "enable_prefix_caching", "engine", "model_name", "num_gpu_blocks"])
        .help("Size of the KV cache as labels; always 1.").feeds("tokensPerBlock maxNumBlocks");
    VllmPreemptions(|engine| engine.totals.pools.suspended_requests) = VLLM.counter("vllm:num_preemptions_total")
        .help("Number of times that a request was preempted.").feeds("iterSuspendedRequests");
    VllmPromptTokens(|engine| engine.requests.prompt_tokens()) = VLLM.counter("vllm:prompt_tokens_total")
        .help("Prompt tokens of finished requests, those found in the KV cache included.").like(Id::TrtllmPromptTokens);
    VllmGenerationTokens(|engine| engine.requests.generation_tokens()) = VLLM.counter("vllm:generation_tokens_total")
        .help("Generated tokens of finished requests.").like(Id::TrtllmGenerationTokens);
    VllmPromptTokensCached(|engine| engine.cached_tokens()) = VLLM.counter("vllm:prompt_tokens_cached_total")
        .help("Prompt tokens found in the KV cache.").feeds("iterCachedTokensByLevel").when(&[When::ServerPage]);
    // Readers divide hits by queries, so each is absent without the other.
    VllmPrefixCacheQueries(|engine| engine.cached_tokens().and(engine.requests.prompt_tokens())) =
        VLLM.counter("vllm:prefix_cache_queries_total").help("Prompt tokens looked up in the KV cache.")
        .like(Id::VllmPromptTokens);
    VllmPrefixCacheHits(|engine| engine.requests.prompt_tokens().and(engine.cached_tokens())) =
        VLLM.counter("vllm:prefix_cache_hits_total").help("Prompt tokens found in the KV cache.")
        .like(Id::VllmPromptTokensCached);
    VllmRequestSuccess(|engine| let finished = engine.requests.finished?; by finished_reason {
        stop: finished[FinishReason::Stop as usize], length: finished[FinishReason::Length as usize],
        // vLLM has no reason for a timeout. It reports every request that ends early as `abort`.
        abort: finished[FinishReason::Timeout as usize].saturating_add(finished[FinishReason::Cancelled as usize]),
        error: finished[FinishReason::Other as usize],
    }) = VLLM.counter("vllm:request_success_total")
        .help("Finished requests, by finish reason.").like(Id::RequestsFinished);
    VllmSpecDrafts(|engine| engine.drafts()?.spec_decode_drafted_requests) =
        VLLM.counter("vllm:spec_decode_num_drafts_total").help("Number of drafts.").feeds("numRequestsWithDraftTokens");
    VllmSpecDraftTokens(|engine| engine.drafts()?.spec_decode_draft_tokens) =
        VLLM.counter("vllm:spec_decode_num_draft_tokens_total").help("Draft tokens.").like(Id::SpecDraftTokens);
    VllmSpecAcceptedTokens(|engine| engine.drafts()?.spec_decode_accepted_tokens) =
        VLLM.counter("vllm:spec_decode_num_accepted_tokens_total").help("Accepted draft tokens.")
        .feeds("numAcceptedTokens");
    VllmRequestPromptTokens(|engine| engine.lengths(&engine.requests.prompt_length, engine.requests.prompt_tokens())) =
        VLLM.histogram("vllm:request_prompt_tokens").unit("tokens").help("Prompt tokens of one finished request.")
        .like(Id::InputTokenLen).when(&[When::ServerPage]);
    VllmRequestGenerationTokens(
        |engine| engine.lengths(&engine.requests.generation_length, engine.requests.generation_tokens())
    ) = VLLM.histogram("vllm:request_generation_tokens").unit("tokens")
        .help("Generated tokens of one finished request.").like(Id::OutputTokenLen).when(&[When::ServerPage]);
    VllmTimeToFirstToken(|engine| seen(&engine.times.time_to_first_token)) =
        VLLM.histogram("vllm:time_to_first_token_seconds").unit("seconds").help("Time to the first token in seconds.")
        .like(Id::TimeToFirstToken);
    VllmInterTokenLatency(|engine| seen(&engine.times.inter_token)) = VLLM.histogram("vllm:inter_token_latency_seconds")
        .unit("seconds").help("Time from one output token to the next in seconds.").like(Id::InterTokenLatency);
    VllmTimePerOutputToken(|engine| seen(&engine.times.time_per_output_token)) =
        VLLM.histogram("vllm:request_time_per_output_token_seconds").unit("seconds")
        .help("Time per output token after the first in seconds.").like(Id::TimePerOutputToken);
    VllmE2eLatency(|engine| seen(&engine.times.e2e_latency)) = VLLM.histogram("vllm:e2e_request_latency_seconds")
        .unit("seconds").help("Time from a request's arrival to its last token in seconds.").like(Id::E2eLatency);
    VllmRequestQueueTime(|engine| seen(&engine.times.queue_time)) = VLLM.histogram("vllm:request_queue_time_seconds")
        .unit("seconds").help("Time from a request's arrival to its first scheduling in seconds.")
        .like(Id::RequestQueueTime);
    VllmRequestInferenceTime(|engine| seen(&engine.times.inference_time)) =
        VLLM.histogram("vllm:request_inference_time_seconds").unit("seconds")
        .help("Time from a request's first scheduling to its last token in seconds.").like(Id::RequestInferenceTime);
    VllmRequestPrefillTime(|engine| seen(&engine.times.prefill_time)) =
        VLLM.histogram("vllm:request_prefill_time_seconds").unit("seconds")
        .help("Time from a request's first scheduling to its first token in seconds.").like(Id::RequestPrefillTime);
    VllmRequestDecodeTime(|engine| seen(&engine.times.decode_time)) = VLLM.histogram("vllm:request_decode_time_seconds")
        .unit("seconds").help("Time from a request's first token to its last in seconds.").like(Id::RequestDecodeTime);
}
