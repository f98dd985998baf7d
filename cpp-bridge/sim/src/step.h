#pragma once

// C functions that call the step function of the simulated engine, which is written in Rust (crates/sim). The structs
// are those of ../border/lib.rs. Times are seconds of virtual time.

#include <cstddef>
#include <cstdint>

extern "C"
{

struct trtllm_sim_engine;

/// The options that the SDK itself implements.
struct trtllm_sim_opened
{
    trtllm_sim_engine* engine;
    double speed; ///< 0: as fast as possible
    double load_seconds;
    std::uint64_t iterations; ///< the engine hangs after this many iterations
    std::uint32_t rank;
    std::uint32_t max_prompt;
    std::uint32_t max_sequence;
    std::int32_t throws; ///< 1: TllmException, 2: an exception that is not a std::exception
};

struct trtllm_sim_record
{
    std::uint64_t iter;
    double latency, queue_latency;
    std::uint32_t new_active, active, queued, completed, max_active;
    std::uint32_t batch_limit, batch_limit_runtime, token_limit;
    std::uint64_t gpu_memory, cpu_memory;
    std::uint32_t cache_max, cache_free, tokens_per_block;
    std::uint64_t alloc_total, alloc_new, reused, missed;
    std::uint32_t scheduled, context_requests, generation_requests, paused, micro_batch;
    std::uint64_t context_tokens, decoded, empty_slots;
    double tokens_per_step;
    bool is_static, has_speculation;
    std::uint64_t drafted, accepted, drafting;
    double draft_seconds, draft_overhead;
};

struct trtllm_sim_row
{
    std::uint64_t id;
    std::int32_t stage; ///< 0 queued, 1 context, 2 generation, 3 complete
    std::uint32_t prefill_position, generated, steps;
    bool scheduled, paused, has_transfer;
    std::uint64_t alloc_total, alloc_new, reused, missed;
    double transfer_ms;
    std::uint64_t transfer_bytes;
};

struct trtllm_sim_entry
{
    std::uint64_t id, first_iter, last_iter;
    double arrival, first_scheduled, first_token, last_token, transfer_start, transfer_end;
    std::uint64_t transfer_bytes, alloc_total, alloc_new, reused, missed;
    std::uint32_t drafted, accepted, output_tokens;
};

/// Functions that a step calls for each event.
struct trtllm_sim_sink
{
    void* context;
    void (*record)(void*, trtllm_sim_record const*);
    void (*rows)(void*, std::uint64_t iter, trtllm_sim_row const*, std::size_t);
    void (*entry)(void*, trtllm_sim_entry const*);
    void (*unanswered)(void*, std::uint64_t id);
};

/// The state after a step, and the true totals until then.
struct trtllm_sim_state
{
    double next; ///< time of the next step; negative: nothing happens before a submission
    bool is_iterating, is_idle;
    std::uint64_t iterations, flushes, arrived, started, completed, context_tokens, first_tokens, decoded_tokens, pauses;
};

/// Parses the options and makes an engine of this release (100 × major + minor). `rows` enables statistics of requests.
/// Returns false and writes a message to `error` if an option is invalid.
bool trtllm_sim_open(char const* options, std::size_t length, std::uint32_t release, bool rows,
    trtllm_sim_opened* opened, char* error, std::size_t error_size);
void trtllm_sim_close(trtllm_sim_engine* engine);
/// Sends a request at `now`. Call it before the step of that time.
void trtllm_sim_submit(trtllm_sim_engine* engine, double now, std::uint64_t id, std::int32_t const* tokens,
    std::size_t count, std::uint32_t max_tokens);
void trtllm_sim_step(trtllm_sim_engine* engine, double now, trtllm_sim_sink const* sink, trtllm_sim_state* state);

} // extern "C"
