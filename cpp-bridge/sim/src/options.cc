// Parses "sim:?key=value&…". One table lists every key, its valid values and its member of Options.

#include "options.h"

#include "tensorrt_llm/common/tllmException.h"

#include <charconv>
#include <fstream>
#include <limits>
#include <string_view>

namespace tensorrt_llm::sim
{
namespace
{

using executor::BatchingType;
using executor::CapacitySchedulerPolicy;
using Text = std::string const&;
using U64 = std::uint64_t;

template <class Number>
bool number(std::string const& text, Number& to, Number least, Number most)
{
    Number value{};
    auto const* const end = text.data() + text.size();
    auto const [stop, error] = std::from_chars(text.data(), end, value);
    // Written so that NaN is rejected.
    if (error != std::errc{} || stop != end || !(value >= least && value <= most))
    {
        return false;
    }
    to = value;
    return true;
}

template <class Number>
bool number(std::string const& text, std::optional<Number>& to, Number least, Number most)
{
    Number value{};
    if (!number(text, value, least, most))
    {
        return false;
    }
    to = value;
    return true;
}

template <class Value, class To>
bool word(Text text, To& to, std::string_view first, Value ifFirst, std::string_view second, Value ifSecond)
{
    if (text != first && text != second)
    {
        return false;
    }
    to = text == first ? ifFirst : ifSecond;
    return true;
}

bool flag(std::string const& text, bool& to)
{
    return word(text, to, "1", true, "0", false);
}

bool readSpeed(Options& o, Text v)
{
    if (v == "max")
    {
        o.speed = 0.0;
        return true;
    }
    return number(v, o.speed, 0.001, 1e6);
}

bool readTrace(Options& o, Text v)
{
    o.trace = v;
    return !v.empty();
}

struct Key
{
    std::string_view name;
    std::string_view accepts;
    bool (*read)(Options&, std::string const&);
};

constexpr auto kMost = std::numeric_limits<U64>::max();

constexpr Key kKeys[] = {
    {"rate", "0 to 100000 requests per second", [](Options& o, Text v) { return number(v, o.rate, 0.0, 1e5); }},
    {"wave", "0 to 1", [](Options& o, Text v) { return number(v, o.wave, 0.0, 1.0); }},
    {"wave_period_s", "1 to 86400", [](Options& o, Text v) { return number(v, o.wavePeriodS, 1.0, 86400.0); }},
    {"seed", "an unsigned integer", [](Options& o, Text v) { return number(v, o.seed, U64{0}, kMost); }},
    {"speed", "0.001 to 1000000, or max", readSpeed},
    {"trace", "a file name", readTrace},
    {"requests", "an unsigned integer", [](Options& o, Text v) { return number(v, o.requests, U64{0}, kMost); }},
    {"iterations", "an unsigned integer", [](Options& o, Text v) { return number(v, o.iterations, U64{0}, kMost); }},
    {"in_flight", "1 to 1000000 requests", [](Options& o, Text v) { return number(v, o.inFlight, 1, 1000000); }},
    {"prompt_mean", "1 to 1000000 tokens", [](Options& o, Text v) { return number(v, o.promptMean, 1, 1000000); }},
    {"output_mean", "1 to 1000000 tokens", [](Options& o, Text v) { return number(v, o.outputMean, 1, 1000000); }},
    {"prefix_share", "0 to 1", [](Options& o, Text v) { return number(v, o.prefixShare, 0.0, 1.0); }},
    {"prefix_tokens", "0 to 1000000 tokens", [](Options& o, Text v) { return number(v, o.prefixTokens, 0, 1000000); }},
    {"load_seconds", "0 to 86400", [](Options& o, Text v) { return number(v, o.loadSeconds, 0.0, 86400.0); }},
    {"max_batch_size", "1 to 65536", [](Options& o, Text v) { return number(v, o.maxBatchSize, 1, 65536); }},
    {"max_num_tokens", "1 to 1000000", [](Options& o, Text v) { return number(v, o.maxNumTokens, 1, 1000000); }},
    {"kv_blocks", "2 to 10000000", [](Options& o, Text v) { return number(v, o.kvBlocks, 2, 10000000); }},
    {"tokens_per_block", "1 to 1024", [](Options& o, Text v) { return number(v, o.tokensPerBlock, 1, 1024); }},
    {"policy", "max_utilization or guaranteed_no_evict",
        [](Options& o, Text v)
        {
            return word(v, o.policy, "max_utilization", CapacitySchedulerPolicy::kMAX_UTILIZATION,
                "guaranteed_no_evict", CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT);
        }},
    {"batching", "inflight or static",
        [](Options& o, Text v)
        { return word(v, o.batching, "inflight", BatchingType::kINFLIGHT, "static", BatchingType::kSTATIC); }},
    {"iter_base_ms", "0.001 to 60000", [](Options& o, Text v) { return number(v, o.iterBaseMs, 0.001, 60000.0); }},
    {"ctx_token_us", "0 to 1000000", [](Options& o, Text v) { return number(v, o.ctxTokenUs, 0.0, 1e6); }},
    {"gen_request_us", "0 to 1000000", [](Options& o, Text v) { return number(v, o.genRequestUs, 0.0, 1e6); }},
    {"jitter", "0 to 1", [](Options& o, Text v) { return number(v, o.jitter, 0.0, 1.0); }},
    {"spec_draft_len", "0 to 64 tokens", [](Options& o, Text v) { return number(v, o.specDraftLen, 0, 64); }},
    {"spec_acceptance", "0 to 1", [](Options& o, Text v) { return number(v, o.specAcceptance, 0.0, 1.0); }},
    {"disagg", "0 or 1", [](Options& o, Text v) { return flag(v, o.disagg); }},
    {"rank", "0 to 65535", [](Options& o, Text v) { return number(v, o.rank, 0, 65535); }},
    {"comm_mode", "leader or orchestrator",
        [](Options& o, Text v) { return word(v, o.orchestrated, "leader", false, "orchestrator", true); }},
    {"throws", "standard or foreign",
        [](Options& o, Text v)
        { return word(v, o.throws, "standard", Throws::kStandard, "foreign", Throws::kForeign); }},
    {"request_stats", "0 or 1", [](Options& o, Text v) { return flag(v, o.requestStats); }},
};

std::string keyNames()
{
    std::string names;
    for (auto const& key : kKeys)
    {
        names += (names.empty() ? "" : ", ") + std::string(key.name);
    }
    return names;
}

int hexDigit(char c)
{
    if (c >= '0' && c <= '9')
    {
        return c - '0';
    }
    auto const lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/// Decodes %XX as in a URL, so that the name of a trace file may contain '&'.
std::string unescaped(std::string_view text)
{
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i)
    {
        if (text[i] == '%' && i + 2 < text.size() && hexDigit(text[i + 1]) >= 0 && hexDigit(text[i + 2]) >= 0)
        {
            plain += static_cast<char>(hexDigit(text[i + 1]) * 16 + hexDigit(text[i + 2]));
            i += 2;
        }
        else
        {
            plain += text[i];
        }
    }
    return plain;
}

void readPair(Options& options, std::string_view pair)
{
    auto const equals = pair.find('=');
    auto const name = pair.substr(0, equals);
    auto const value = equals == std::string_view::npos ? std::string() : unescaped(pair.substr(equals + 1));
    for (auto const& key : kKeys)
    {
        if (key.name == name)
        {
            if (!key.read(options, value))
            {
                TLLM_THROW(
                    "sim: invalid option " + std::string(name) + "=" + value + "; use " + std::string(key.accepts));
            }
            return;
        }
    }
    TLLM_THROW("sim: unknown option " + std::string(pair) + "; use one of " + keyNames());
}

/// Reads the options in the file simulated.engine of an engine directory.
std::string described(std::string const& directory)
{
    std::ifstream file(directory + "/simulated.engine");
    std::string line;
    if (!std::getline(file, line) || line.substr(0, 4) != "sim:")
    {
        TLLM_THROW("the simulated TensorRT-LLM cannot load the engine directory " + directory
            + "; use sim:?rate=8 as the engine, write such a line to its file simulated.engine, or build with"
              " TENSORRT_LLM_ROOT set to a real TensorRT-LLM");
    }
    return line;
}

} // namespace

Options parseOptions(std::string const& enginePath)
{
    auto const engine = enginePath.substr(0, 4) == "sim:" ? enginePath : described(enginePath);
    auto rest = std::string_view(engine).substr(4);
    if (!rest.empty() && rest.front() == '?')
    {
        rest.remove_prefix(1);
    }
    Options options;
    while (!rest.empty())
    {
        auto const end = rest.find('&');
        if (auto const pair = rest.substr(0, end); !pair.empty())
        {
            readPair(options, pair);
        }
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    return options;
}

} // namespace tensorrt_llm::sim
