//! The histograms that this exporter defines for an engine.

use super::{ENGINE, EngineReadings, EngineWriter, When, families, seen};

families! {
    EngineHistograms of EngineReadings<'_> => EngineWriter<'_>;

    IterationLatency(|engine| &engine.totals.iteration_latency) = ENGINE.histogram("nv_trt_llm_iteration_latency_seconds")
        .unit("seconds").stable().help("Duration of one iteration in seconds, without iterations whose reported time includes waiting for requests.")
        .origin("the time of one batch, from iterLatencyMS, hostStepTimeMS and timestamp: see semantics.md; C++: iterLatencyMS of the next record, without the first two after idle")
        .feeds("IterationStats.iterLatencyMS hostStepTimeMS");
    IterationScheduledRequests(|engine| &engine.totals.iteration_scheduled_requests) =
        ENGINE.histogram("nv_trt_llm_iteration_scheduled_requests").unit("requests").stable()
        .help("Requests scheduled in one iteration.")
        .origin("numScheduledRequests, summed over attention-DP ranks; one observation per record if statistics are sampled")
        .feeds("numScheduledRequests");
    IterationContextTokens(|engine| &engine.totals.iteration_context_tokens) = ENGINE.histogram("nv_trt_llm_iteration_context_tokens")
        .unit("tokens").stable().help("Tokens computed in context phases in one iteration; iterations without such tokens are left out.")
        .origin("numCtxTokens, summed over attention-DP ranks; one observation per record if statistics are sampled")
        .feeds("InflightBatchingStats.numCtxTokens");
    RankImbalance(|engine| seen(&engine.totals.ranks.as_ref()?.imbalance)) = ENGINE.histogram("nv_trt_llm_rank_imbalance_ratio")
        .unit("ratio").help("Tokens of the fullest attention data parallel rank as a multiple of the mean over all ranks; 1 is even.")
        .origin("numCtxTokens and generated tokens by rank, else by attentionDpRank; one observation per iteration that has tokens and the rows of all ranks")
        .feeds("attentionDpRank");
    NewRequestQueueTime(|engine| &engine.totals.new_request_queue_time) = ENGINE.histogram("nv_trt_llm_new_request_queue_time_seconds")
        .unit("seconds").stable().help("Queue time of newly activated requests in seconds: the mean of each iteration, observed once per request.")
        .origin("newActiveRequestsQueueLatencyMS / numNewActiveRequests. PyTorch engine: the value is the sum of seconds since its start, so its increases count. A value that falls is never a sum, and one that stays without a new request always is")
        .feeds("newActiveRequestsQueueLatencyMS numNewActiveRequests");
    HostStep(|engine| seen(&engine.totals.host_step)) = ENGINE.histogram("nv_trt_llm_host_step_seconds").unit("seconds")
        .help("Duration of one host loop step in seconds.").origin("hostStepTimeMS, as reported: with the overlap scheduler, the pass that built the batch and waited for the batch before; without the first steps after idle, which contain the wait for work")
        .feeds("hostStepTimeMS");
    DeviceStep(|engine| seen(&engine.totals.device_step)) = ENGINE.histogram("nv_trt_llm_device_step_seconds").unit("seconds")
        .help("Duration of an earlier pass of the engine's loop on the GPU in seconds, idle time included.")
        .origin("prevDeviceStepTimeMS, as reported: the whole pass before that of hostStepTimeMS, so it is not the work of the GPU (that is nv_trt_llm_gpu_forward_seconds)")
        .feeds("prevDeviceStepTimeMS");
    GpuForward(|engine| seen(&engine.totals.gpu_forward)) = ENGINE.histogram("nv_trt_llm_gpu_forward_seconds").unit("seconds")
        .help("Duration of the forward pass on the GPU in seconds.").origin("gpuForwardTimeMS").feeds("gpuForwardTimeMS");

    // Times of requests. They come from RequestPerfMetrics, from the histograms of a trtllm-serve without /perf_metrics, or
    // from RequestStats with a resolution of one iteration (nv_trt_llm_request_latency_info says which).
    TimeToFirstToken(|engine| &engine.times.time_to_first_token) = ENGINE.histogram("nv_trt_llm_time_to_first_token_seconds")
        .unit("seconds").stable().help("Time from a request's arrival to its first token in seconds.")
        .origin("RequestPerfMetrics firstTokenTime − arrivalTime; without them trtllm_time_to_first_token_seconds of trtllm-serve; else stage changes in RequestStats")
        .feeds("perfMetrics ctxPerfMetrics genPerfMetrics timingMetrics arrivalTime firstTokenTime").when(&[When::Rows]);
    ServerTimeToFirstToken(|engine| seen(&engine.times.server_time_to_first_token)) =
        ENGINE.histogram("nv_trt_llm_server_time_to_first_token_seconds").unit("seconds")
        .help("Time from a request's arrival at the HTTP server to its first token sent, in seconds.")
        .origin("RequestPerfMetrics server_first_token_time − server_arrival_time")
        .feeds("disaggServerArrivalTime disaggServerFirstTokenTime serverArrivalTime serverFirstTokenTime");
    TimePerOutputToken(|engine| engine.requests.time_per_output_token()) = ENGINE.histogram("nv_trt_llm_time_per_output_token_seconds")
        .unit("seconds").stable().help("Time per output token after the first in seconds.")
        .origin("(last − first token) / (tokens − 1), by outputTokens, else numGeneratedTokens; absent until a number of tokens is known. trtllm-serve's own trtllm_time_per_output_token_seconds replaces both: bucket by bucket, a bucket with another bound is added to the next higher one")
        .feeds("numGeneratedTokens outputTokens genPerfMetrics").when(&[When::ServerPage]);
    E2eLatency(|engine| &engine.times.e2e_latency) = ENGINE.histogram("nv_trt_llm_e2e_request_latency_seconds").unit("seconds").stable()
        .help("Time from a request's arrival to its last token in seconds.")
        .origin("RequestPerfMetrics lastTokenTime − arrivalTime; without them trtllm_e2e_request_latency_seconds of trtllm-serve; else stage changes in RequestStats")
        .feeds("ctxPerfMetrics genPerfMetrics arrivalTime lastTokenTime").when(&[When::Rows]);
    RequestQueueTime(|engine| &engine.times.queue_time) = ENGINE.histogram("nv_trt_llm_request_queue_time_seconds").unit("seconds").stable()
        .help("Time from a request's arrival to its first scheduling in seconds.")
        .origin("RequestPerfMetrics firstScheduledTime − arrivalTime; without them trtllm_request_queue_time_seconds of trtllm-serve; else stage changes in RequestStats")
        .feeds("scheduled ctxPerfMetrics arrivalTime firstScheduledTime");
    GenerationQueueTime(|engine| seen(&engine.times.generation_queue)) = ENGINE.histogram("nv_trt_llm_generation_queue_time_seconds")
        .unit("seconds").help("Time of a request in the queue of a generation server in seconds, without the transfer of its KV cache.")
        .origin("RequestPerfMetrics firstScheduledTime − arrivalTime of the generation server, without kvCacheTransferStart to kvCacheTransferEnd and the time before firstTokenTime of the context server; absent where requests are scheduled before the transfer")
        .feeds("genPerfMetrics firstScheduledTime kvCacheTransferStart kvCacheTransferEnd");
    RequestPrefillTime(|engine| &engine.times.prefill_time) = ENGINE.histogram("nv_trt_llm_request_prefill_time_seconds")
        .unit("seconds").stable().help("Time from a request's first scheduling to its first token in seconds.")
        .origin("RequestPerfMetrics firstTokenTime − firstScheduledTime; without them trtllm_request_prefill_time_seconds of trtllm-serve; else stage changes in RequestStats")
        .feeds("ctxPerfMetrics firstScheduledTime firstTokenTime").when(&[When::Rows]);
    RequestDecodeTime(|engine| &engine.times.decode_time) = ENGINE.histogram("nv_trt_llm_request_decode_time_seconds")
        .unit("seconds").stable().help("Time from a request's first token to its last in seconds.")
        .origin("RequestPerfMetrics lastTokenTime − firstTokenTime; without them trtllm_request_decode_time_seconds of trtllm-serve; else stage changes in RequestStats")
        .feeds("genPerfMetrics firstTokenTime lastTokenTime").when(&[When::Rows]);
    RequestInferenceTime(|engine| &engine.times.inference_time) = ENGINE.histogram("nv_trt_llm_request_inference_time_seconds")
        .unit("seconds").stable().help("Time from a request's first scheduling to its last token in seconds.")
        .origin("RequestPerfMetrics lastTokenTime − firstScheduledTime; without them trtllm_request_inference_time_seconds of trtllm-serve; else stage changes in RequestStats")
        .feeds("ctxPerfMetrics genPerfMetrics firstScheduledTime lastTokenTime").when(&[When::Rows]);
    KvCacheTransferTime(|engine| &engine.times.kv_cache_transfer) = ENGINE.histogram("nv_trt_llm_kv_cache_transfer_seconds")
        .unit("seconds").stable().help("Duration of a request's KV cache transfer between instances in seconds.")
        .origin("RequestPerfMetrics kvCacheTransferEnd − kvCacheTransferStart; else disServingStats.kvCacheTransferMS")
        .feeds("kvCacheTransferMS genPerfMetrics kvCacheTransferStart kvCacheTransferEnd");
    KvCacheTransferBytes(|engine| &engine.times.kv_cache_transfer_bytes) = ENGINE.histogram("nv_trt_llm_kv_cache_transfer_bytes")
        .unit("bytes").stable().help("Size of a request's KV cache transfer in bytes.")
        .origin("RequestPerfMetrics kvCacheSize; else disServingStats.kvCacheSize").feeds("kvCacheSize");
    RequestKvHitRatio(|engine| &engine.times.kv_cache_hit_ratio) = ENGINE.histogram("nv_trt_llm_request_kv_cache_hit_ratio")
        .unit("ratio").stable().help("Share (0-1) of a request's KV cache blocks found in the cache.")
        .origin("RequestPerfMetrics numReusedBlocks / (numReusedBlocks + numMissedBlocks); else reusedBlocksPerRequest, missedBlocksPerRequest")
        .feeds("reusedBlocksPerRequest missedBlocksPerRequest kvCacheMetrics numReusedBlocks numMissedBlocks");
    RequestCachedTokens(|engine| seen(&engine.times.cached_tokens)) = ENGINE.histogram("nv_trt_llm_request_cached_tokens").unit("tokens")
        .help("Tokens of a request's prompt that were found in the KV cache, requests without any included.")
        .origin("trtllm-serve's own trtllm_prompt_cached_tokens_per_request, bucket by bucket; else cachedTokens sent with RequestPerfMetrics")
        .feeds("cachedTokens").when(&[When::ServerPage]);
    RequestKvBlocks(|engine| seen(&engine.times.kv_cache_blocks)) = ENGINE.histogram("nv_trt_llm_request_kv_cache_blocks").unit("blocks")
        .help("KV cache blocks allocated to one request.")
        .origin("RequestPerfMetrics numTotalAllocatedBlocks; else allocTotalBlocksPerRequest")
        .feeds("allocTotalBlocksPerRequest numTotalAllocatedBlocks");
    RequestKvNewBlocks(|engine| seen(&engine.times.kv_cache_new_blocks)) = ENGINE.histogram("nv_trt_llm_request_kv_cache_new_blocks")
        .unit("blocks").help("KV cache blocks allocated to one request that held no cached content before.")
        .origin("RequestPerfMetrics numNewAllocatedBlocks; else allocNewBlocksPerRequest")
        .feeds("allocNewBlocksPerRequest numNewAllocatedBlocks");
    RequestIterations(|engine| seen(&engine.times.iterations)) = ENGINE.histogram("nv_trt_llm_request_iterations").unit("iterations")
        .help("Iterations of one request, from its first to its last.")
        .origin("RequestPerfMetrics lastIter − firstIter + 1").feeds("firstIter lastIter");
    RequestDecodedTokens(|engine| seen(&engine.times.decoded_tokens_per_iteration)) =
        ENGINE.histogram("nv_trt_llm_request_decoded_tokens_per_iteration")
        .help("Mean number of tokens that one request decoded per iteration.")
        .origin("RequestStats.avgNumDecodedTokensPerIter of completed requests").feeds("RequestStats.avgNumDecodedTokensPerIter");
    RequestSpecAcceptance(|engine| seen(&engine.times.spec_decode_acceptance_ratio)) =
        ENGINE.histogram("nv_trt_llm_request_spec_decode_acceptance_ratio").unit("ratio")
        .help("Share (0-1) of a request's draft tokens accepted by the model.")
        .origin("RequestPerfMetrics totalAcceptedDraftTokens / totalDraftTokens, or acceptanceRate where these are not sent; nothing is observed where totalDraftTokens is 0 or less than totalAcceptedDraftTokens")
        .feeds("speculativeDecoding acceptanceRate totalAcceptedDraftTokens totalDraftTokens");
    InterTokenLatency(|engine| seen(&engine.times.inter_token)) = ENGINE.histogram("nv_trt_llm_inter_token_latency_seconds").unit("seconds")
        .help("Time from one output token of a request to its next in seconds, over requests without speculative decoding.")
        .origin("differences of token_time in time_breakdown_metrics, the first from the last chunk of the prompt; requests without speculative_decoding")
        .feeds("timeBreakdownMetrics ctxChunkMetrics stepMetrics tokenTime");
    InterStepLatency(|engine| seen(&engine.times.inter_step)) = ENGINE.histogram("nv_trt_llm_inter_step_latency_seconds").unit("seconds")
        .help("Time from one decoding step of a request to its next in seconds, over requests with speculative decoding, whose steps give several tokens.")
        .origin("differences of token_time in time_breakdown_metrics; requests with speculative_decoding")
        .feeds("timeBreakdownMetrics stepMetrics tokenTime");
    RequestGpuForwardTime(|engine, series| series.all(engine.times.gpu_forward.each_ref().map(seen))) = ENGINE.histogram("nv_trt_llm_request_gpu_forward_time_seconds").unit("seconds")
        .by("phase", &["context", "generation"])
        .help("GPU time in seconds of the forward passes of all batches that one request was part of, by phase.")
        .origin("gpu_forward_time in ctx_chunk_metrics and step_metrics of time_breakdown_metrics; requests of a batch share its time, so a sum over requests exceeds the time of the GPU")
        .feeds("timeBreakdownMetrics ctxChunkMetrics stepMetrics gpuForwardTime");
    RequestGpuSampleTime(|engine, series| series.all(engine.times.gpu_sample.each_ref().map(seen))) = ENGINE.histogram("nv_trt_llm_request_gpu_sample_time_seconds").unit("seconds")
        .by("phase", &["context", "generation"])
        .help("GPU time in seconds of sampling in all batches that one request was part of, by phase.")
        .origin("gpu_sample_time in time_breakdown_metrics, as for the forward passes")
        .feeds("timeBreakdownMetrics ctxChunkMetrics stepMetrics gpuSampleTime");
}
