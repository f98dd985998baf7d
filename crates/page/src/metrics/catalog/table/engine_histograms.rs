//! The histograms that this exporter defines for an engine.

use super::{ENGINE, EngineView, FamilyWriter, When, families, seen};

families! {
    EngineHistograms of EngineView<'_> => FamilyWriter<'_>;

    IterationLatency(|engine| &engine.totals.iteration_latency) =
        ENGINE.histogram("nv_trt_llm_iteration_latency_seconds").unit("seconds").stable()
        .help("Duration of one iteration in seconds, without iterations whose reported time includes waiting for \
            requests.").feeds("IterationStats.iterLatencyMS hostStepTimeMS");
    IterationScheduledRequests(|engine| &engine.totals.iteration_scheduled_requests) =
        ENGINE.histogram("nv_trt_llm_iteration_scheduled_requests").unit("requests").stable()
        .help("Requests scheduled in one iteration.").feeds("numScheduledRequests");
    IterationContextTokens(|engine| &engine.totals.iteration_context_tokens) =
        ENGINE.histogram("nv_trt_llm_iteration_context_tokens").unit("tokens").stable()
        .help("Tokens computed in context phases in one iteration; iterations without such tokens are left out.")
        .feeds("InflightBatchingStats.numCtxTokens");
    RankImbalance(|engine| seen(&engine.totals.ranks.as_ref()?.imbalance)) =
        ENGINE.histogram("nv_trt_llm_rank_imbalance_ratio").unit("ratio")
        .help("Tokens of the fullest attention data parallel rank as a multiple of the mean over all ranks; 1 is even.")
        .feeds("attentionDpRank");
    NewRequestQueueTime(|engine| &engine.totals.new_request_queue_time) =
        ENGINE.histogram("nv_trt_llm_new_request_queue_time_seconds").unit("seconds").stable()
        .help("Queue time of newly activated requests in seconds: the mean of each iteration, observed once per \
            request.").feeds("newActiveRequestsQueueLatencyMS numNewActiveRequests");
    HostStep(|engine| seen(&engine.totals.host_step)) = ENGINE.histogram("nv_trt_llm_host_step_seconds").unit("seconds")
        .help("Duration of one host loop step in seconds.").feeds("hostStepTimeMS");
    DeviceStep(|engine| seen(&engine.totals.device_step)) = ENGINE.histogram("nv_trt_llm_device_step_seconds")
        .unit("seconds")
        .help("Duration of an earlier pass of the engine's loop on the GPU in seconds, idle time included.")
        .feeds("prevDeviceStepTimeMS");
    GpuForward(|engine| seen(&engine.totals.gpu_forward)) = ENGINE.histogram("nv_trt_llm_gpu_forward_seconds")
        .unit("seconds").help("Duration of the forward pass on the GPU in seconds.").feeds("gpuForwardTimeMS");

    // Times of requests. They come from RequestPerfMetrics, from the histograms of a trtllm-serve without
    // /perf_metrics, or from RequestStats with a resolution of one iteration (nv_trt_llm_request_latency_info says
    // which).
    TimeToFirstToken(|engine| &engine.times.time_to_first_token) =
        ENGINE.histogram("nv_trt_llm_time_to_first_token_seconds").in_default().unit("seconds").stable()
        .help("Time from a request's arrival to its first token in seconds.")
        .feeds("perfMetrics ctxPerfMetrics genPerfMetrics timingMetrics arrivalTime firstTokenTime")
        .when(&[When::Rows]);
    ServerTimeToFirstToken(|engine| seen(&engine.times.server_time_to_first_token)) =
        ENGINE.histogram("nv_trt_llm_server_time_to_first_token_seconds").unit("seconds")
        .help("Time from a request's arrival at the HTTP server to its first token sent, in seconds.")
        .feeds("disaggServerArrivalTime disaggServerFirstTokenTime serverArrivalTime serverFirstTokenTime");
    TimePerOutputToken(|engine| engine.requests.time_per_output_token()) =
        ENGINE.histogram("nv_trt_llm_time_per_output_token_seconds").in_default().unit("seconds").stable()
        .help("Time per output token after the first in seconds.")
        .feeds("numGeneratedTokens outputTokens genPerfMetrics").when(&[When::ServerPage]);
    E2eLatency(|engine| &engine.times.e2e_latency) =
        ENGINE.histogram("nv_trt_llm_e2e_request_latency_seconds").in_default()
        .unit("seconds").stable().help("Time from a request's arrival to its last token in seconds.")
        .feeds("ctxPerfMetrics genPerfMetrics arrivalTime lastTokenTime").when(&[When::Rows]);
    RequestQueueTime(|engine| &engine.times.queue_time) = ENGINE.histogram("nv_trt_llm_request_queue_time_seconds")
        .unit("seconds").stable().help("Time from a request's arrival to its first scheduling in seconds.")
        .feeds("scheduled ctxPerfMetrics arrivalTime firstScheduledTime");
    GenerationQueueTime(|engine| seen(&engine.times.generation_queue)) =
        ENGINE.histogram("nv_trt_llm_generation_queue_time_seconds").unit("seconds")
        .help("Time of a request in the queue of a generation server in seconds, without the transfer of its KV cache.")
        .feeds("genPerfMetrics firstScheduledTime kvCacheTransferStart kvCacheTransferEnd");
    RequestPrefillTime(|engine| &engine.times.prefill_time) =
        ENGINE.histogram("nv_trt_llm_request_prefill_time_seconds").unit("seconds").stable()
        .help("Time from a request's first scheduling to its first token in seconds.")
        .feeds("ctxPerfMetrics firstScheduledTime firstTokenTime").when(&[When::Rows]);
    RequestDecodeTime(|engine| &engine.times.decode_time) = ENGINE.histogram("nv_trt_llm_request_decode_time_seconds")
        .unit("seconds").stable().help("Time from a request's first token to its last in seconds.")
        .feeds("genPerfMetrics firstTokenTime lastTokenTime").when(&[When::Rows]);
    RequestInferenceTime(|engine| &engine.times.inference_time) =
        ENGINE.histogram("nv_trt_llm_request_inference_time_seconds").unit("seconds").stable()
        .help("Time from a request's first scheduling to its last token in seconds.")
        .feeds("ctxPerfMetrics genPerfMetrics firstScheduledTime lastTokenTime").when(&[When::Rows]);
    KvCacheTransferTime(|engine| &engine.times.kv_cache_transfer) =
        ENGINE.histogram("nv_trt_llm_kv_cache_transfer_seconds").unit("seconds").stable()
        .help("Duration of a request's KV cache transfer between instances in seconds.")
        .feeds("kvCacheTransferMS genPerfMetrics kvCacheTransferStart kvCacheTransferEnd");
    KvCacheTransferBytes(|engine| &engine.times.kv_cache_transfer_bytes) =
        ENGINE.histogram("nv_trt_llm_kv_cache_transfer_bytes").unit("bytes").stable()
        .help("Size of a request's KV cache transfer in bytes.").feeds("kvCacheSize");
    RequestKvHitRatio(|engine| &engine.times.kv_cache_hit_ratio) =
        ENGINE.histogram("nv_trt_llm_request_kv_cache_hit_ratio").unit("ratio").stable()
        .help("Share (0-1) of a request's KV cache blocks found in the cache.")
        .feeds("reusedBlocksPerRequest missedBlocksPerRequest kvCacheMetrics numReusedBlocks numMissedBlocks");
    RequestCachedTokens(|engine| seen(&engine.times.cached_tokens)) =
        ENGINE.histogram("nv_trt_llm_request_cached_tokens").unit("tokens")
        .help("Tokens of a request's prompt that were found in the KV cache, requests without any included.")
        .feeds("cachedTokens").when(&[When::ServerPage]);
    RequestKvBlocks(|engine| seen(&engine.times.kv_cache_blocks)) =
        ENGINE.histogram("nv_trt_llm_request_kv_cache_blocks").unit("blocks")
        .help("KV cache blocks allocated to one request.").feeds("allocTotalBlocksPerRequest numTotalAllocatedBlocks");
    RequestKvNewBlocks(|engine| seen(&engine.times.kv_cache_new_blocks)) =
        ENGINE.histogram("nv_trt_llm_request_kv_cache_new_blocks").unit("blocks")
        .help("KV cache blocks allocated to one request that held no cached content before.")
        .feeds("allocNewBlocksPerRequest numNewAllocatedBlocks");
    RequestIterations(|engine| seen(&engine.times.iterations)) = ENGINE.histogram("nv_trt_llm_request_iterations")
        .unit("iterations").help("Iterations of one request, from its first to its last.").feeds("firstIter lastIter");
    RequestDecodedTokens(|engine| seen(&engine.times.decoded_tokens_per_iteration)) =
        ENGINE.histogram("nv_trt_llm_request_decoded_tokens_per_iteration")
        .help("Mean number of tokens that one request decoded per iteration.")
        .feeds("RequestStats.avgNumDecodedTokensPerIter");
    RequestSpecAcceptance(|engine| seen(&engine.times.spec_decode_acceptance_ratio)) =
        ENGINE.histogram("nv_trt_llm_request_spec_decode_acceptance_ratio").unit("ratio")
        .help("Share (0-1) of a request's draft tokens accepted by the model.")
        .feeds("speculativeDecoding acceptanceRate totalAcceptedDraftTokens totalDraftTokens");
    InterTokenLatency(|engine| seen(&engine.times.inter_token)) =
        ENGINE.histogram("nv_trt_llm_inter_token_latency_seconds").unit("seconds")
        .help("Time from one output token of a request to its next in seconds, over requests without speculative \
            decoding.").feeds("timeBreakdownMetrics ctxChunkMetrics stepMetrics tokenTime");
    InterStepLatency(|engine| seen(&engine.times.inter_step)) =
        ENGINE.histogram("nv_trt_llm_inter_step_latency_seconds").unit("seconds")
        .help("Time from one decoding step of a request to its next in seconds, over requests with speculative \
            decoding, whose steps give several tokens.").feeds("timeBreakdownMetrics stepMetrics tokenTime");
    RequestGpuForwardTime(|engine, series| series.all(engine.times.gpu_forward.each_ref().map(seen))) =
        ENGINE.histogram("nv_trt_llm_request_gpu_forward_time_seconds").unit("seconds")
        .by("phase", &["context", "generation"])
        .help("GPU time in seconds of the forward passes of all batches that one request was part of, by phase.")
        .feeds("timeBreakdownMetrics ctxChunkMetrics stepMetrics gpuForwardTime");
    RequestGpuSampleTime(|engine, series| series.all(engine.times.gpu_sample.each_ref().map(seen))) =
        ENGINE.histogram("nv_trt_llm_request_gpu_sample_time_seconds").unit("seconds")
        .by("phase", &["context", "generation"])
        .help("GPU time in seconds of sampling in all batches that one request was part of, by phase.")
        .feeds("timeBreakdownMetrics ctxChunkMetrics stepMetrics gpuSampleTime");
}
