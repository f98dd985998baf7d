#pragma once

// The name of an engine, and the options of a publisher.

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <poll.h>
#include <unistd.h>

#if !defined(__cpp_exceptions)
#error "trtllm_exporter needs exceptions, as TensorRT-LLM does; remove -fno-exceptions"
#endif

// install.sh writes the version. In the sources it is 0.0.0.
#define TRTLLM_EXPORTER_VERSION_MAJOR 0
#define TRTLLM_EXPORTER_VERSION_MINOR 0
#define TRTLLM_EXPORTER_VERSION_PATCH 0

namespace trtllm_exporter
{
// install.sh replaces this name with the version. A program can then contain two versions of this header, for example
// in two plugins, without mixing their functions and static variables.
inline namespace development
{

/// Receives one log line per change of state: connected, not connected and why, dropping records. The threads that
/// publish and the thread of a Poller call it, maybe at the same time, but never after the end of the destructors. It
/// must return soon.
using Log = std::function<void(std::string_view)>;

/// Logs to standard error, with one write() call per line. Drops the line if it would block, such as at a full pipe, or
/// raise SIGPIPE, because it runs on the server's threads.
inline void logToStderr(std::string_view text)
{
    auto const line = "trtllm_exporter: " + std::string(text) + "\n";
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&ready, 1, 0) == 1 && ready.revents == POLLOUT)
    {
        static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
    }
}

/// The labels of an engine on the exporter's page.
struct EngineName
{
    /// For an engine without a chosen name: the exporter uses the default model name and the lowest free version.
    EngineName() = default;

    /// A chosen name. The exporter closes a second connection with the same name.
    explicit EngineName(std::string chosenModel, std::string chosenVersion = "1")
        : model(std::move(chosenModel))
        , version(std::move(chosenVersion))
        , derived(false)
    {
    }

    /// The model name is the name of the engine's folder, and no version is chosen. "/models/llama/1" and
    /// "/models/llama/fp8/2-gpu" both become "llama": folder names that only say how an engine was built are skipped.
    [[nodiscard]] static EngineName ofEngine(std::string_view directory)
    {
        EngineName name;
        while (!directory.empty())
        {
            auto const end = directory.find_last_not_of('/');
            directory = directory.substr(0, end == std::string_view::npos ? 0 : end + 1);
            auto const slash = directory.rfind('/');
            auto const folder = slash == std::string_view::npos ? directory : directory.substr(slash + 1);
            if (!folder.empty() && !saysHowItWasBuilt(folder))
            {
                name.model = folder;
                break;
            }
            directory = directory.substr(0, directory.size() - folder.size());
        }
        return name;
    }

    friend bool operator==(EngineName const& one, EngineName const& other)
    {
        return one.model == other.model && one.version == other.version && one.derived == other.derived;
    }

    std::string model = "tensorrt_llm";
    std::string version = "1";
    /// True if this name was not chosen. Then the exporter ignores `version`.
    bool derived = true;

private:
    /// True for names like "1", "2-gpu", "tp2pp2", "fp8", "7B" and "engines": without digits and punctuation, the rest is
    /// one of the words below. The Python package has the same list.
    static bool saysHowItWasBuilt(std::string_view folder)
    {
        std::string letters;
        for (auto const c : folder)
        {
            if (std::string_view("0123456789-_.").find(c) == std::string_view::npos)
            {
                letters += c;
            }
        }
        for (auto const* word : {"", "gpu", "gpus", "tp", "pp", "tppp", "engine", "engines", "trtengine", "trtengines",
                 "fp", "bf", "nvfp", "int", "b", "B", "xb", "xB"})
        {
            if (letters == word)
            {
                return true;
            }
        }
        return false;
    }
};

struct PublisherOptions
{
    /// Size of the buffer for records that the exporter's socket has no room for, in bytes. A record takes about 900
    /// bytes.
    std::size_t bufferBytes = std::size_t{4} << 20;
    /// How long the destructor may wait until the exporter has read what waits in the buffer.
    std::chrono::milliseconds flushTimeout{200};
    Log log = logToStderr;
    /// Settings of the engine for `nv_trt_llm_engine_config_info`, by the name of the label: {{"quantization", "FP8"},
    /// {"tensor_parallel_size", "2"}}.
    std::map<std::string, std::string> config;
};

} // namespace development
} // namespace trtllm_exporter
