#pragma once

// The options of an Exporter, and the thread that polls its Executor.

#include "trtllm_exporter/detail/rows.h"
#include "trtllm_exporter/publisher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <pthread.h>

extern "C"
{
    // The C interface of libtrtllm_exporter. Only this header calls it.
    struct trtllm_exporter_server;
    struct trtllm_exporter_options
    {
        std::size_t size;
        char const* listen;
        char const* telemetry_path;
        char const* model;
        char const* version;
        char const* engine_version;
        std::uint64_t stale_after_ms;
        char const* config;
    };
    trtllm_exporter_server* trtllm_exporter_start(trtllm_exporter_options const*, char* error, std::size_t size);
    void trtllm_exporter_absorb(trtllm_exporter_server*, unsigned char const* records, std::size_t size,
        std::uint64_t took_us, char const* failure);
    void trtllm_exporter_address(trtllm_exporter_server const*, char* address, std::size_t size);
    int trtllm_exporter_listener(trtllm_exporter_server const*);
    void trtllm_exporter_stop(trtllm_exporter_server*);
}

namespace trtllm_exporter
{
inline namespace development
{

struct Options
{
    /// The labels of this engine. EngineName::ofEngine(directory) derives them from the engine's folder.
    EngineName name;
    /// HOST:PORT to serve the page on. Port 0 picks a free port. Empty: no page.
    std::string listen;
    std::string telemetryPath = "/metrics";
    /// Path of the sidecar's ingest socket. Empty: do not publish. If `listen` is empty too, the sidecar's default
    /// path, /run/trtllm-exporter/ingest.sock.
    std::string socket;
    /// The longest time between two polls of the Executor.
    std::chrono::milliseconds interval{100};
    /// The page drops its load gauges when the Executor has not answered for this long.
    std::chrono::milliseconds staleAfter{15000};
    /// Set it to false if your server reads the Executor's request statistics itself. The Executor keeps request
    /// statistics only if its configuration enables them.
    bool drainRequests = true;
    /// The version of TensorRT-LLM, for the page's `engine_info`.
    std::string engineVersion;
    /// How long stop() waits for a call of the Executor that is running. Then it abandons the call and its records. Used
    /// only if the Exporter shares ownership of the Executor.
    std::chrono::milliseconds stopTimeout{300};
    /// The publisher's buffer and timeouts. Its log callback and `config` serve the whole library.
    PublisherOptions publisher;
};

namespace detail
{

/// True for the Executor, and for classes with the same methods.
template <class T, class = void>
struct IsExecutor : std::false_type
{
};
template <class T>
struct IsExecutor<T, std::void_t<decltype(std::declval<T&>().canEnqueueRequests())>> : std::true_type
{
};

/// The thread that polls the Executor, and the destinations of its records.
class Attachment
{
public:
    /// Polls the Executor once and passes what it returned to take(). Returns an error message, empty on success.
    using Poll = std::function<std::string(Attachment&)>;

    /// `shared`: the Executor stays valid during a poll, so stop() may leave a poll behind.
    Attachment(Poll poll, Options options, bool shared)
        : mPoll(std::move(poll))
        , mOptions(std::move(options))
        , mShared(shared)
    {
        if (mOptions.listen.empty() && mOptions.socket.empty())
        {
            mOptions.socket = "/run/trtllm-exporter/ingest.sock";
        }
        if (!mOptions.socket.empty())
        {
            mPublisher.emplace(mOptions.socket, mOptions.name, mOptions.publisher);
        }
        if (!mOptions.listen.empty())
        {
            serve();
        }
    }

    static bool start(std::shared_ptr<Attachment> const& attachment)
    {
        // The thread shares ownership, because stop() may leave it behind.
        auto context = std::make_unique<std::shared_ptr<Attachment>>(attachment);
        attachment->mStarted = startThread(
            attachment->mThread, "trtllm-poll",
            [](void* argument) -> void*
            {
                std::unique_ptr<std::shared_ptr<Attachment>> const self(
                    static_cast<std::shared_ptr<Attachment>*>(argument));
                (*self)->run();
                return nullptr;
            },
            context.get());
        return attachment->mStarted && context.release() != nullptr;
    }

    void stop() noexcept
    {
        if (mStarted)
        {
            stopThread();
        }
        if (mServer != nullptr)
        {
            Forks::forget(trtllm_exporter_listener(mServer));
            trtllm_exporter_stop(mServer);
        }
        mPublisher.reset();
    }

    /// Takes records that the Executor returned. Only the polling thread calls this.
    template <class Records>
    void take(Records const& records)
    {
        std::lock_guard const lock(mOutputs);
        if (mClosed)
        {
            return;
        }
        mDrained += records.size();
        for (auto const& record : records)
        {
            if (mPublisher)
            {
                mPublisher->publish(record);
            }
            if (mServer != nullptr)
            {
                if constexpr (Has_requestStats<std::decay_t<decltype(record)>>::value)
                {
                    mRows.requests(record);
                }
                else
                {
                    mRows.record(record);
                }
            }
        }
    }

    /// Takes a response of the Executor, from any thread of the host.
    template <class Response>
    void observe(Response const& response)
    {
        if (response.hasError())
        {
            return;
        }
        auto const& result = response.getResult();
        if constexpr (Has_requestPerfMetrics<std::decay_t<decltype(result)>>::value)
        {
            if (result.isFinal && result.requestPerfMetrics)
            {
                if (mPublisher)
                {
                    mPublisher->publish(response);
                }
                if (mServer != nullptr)
                {
                    std::lock_guard const lock(mMutex);
                    if (mFinished.bytes().size() < kMaxFinishedBytes)
                    {
                        mFinished.finished(response.getRequestId(), result);
                        return;
                    }
                    lost.fetch_add(1, std::memory_order_relaxed);
                }
            }
        }
    }

    [[nodiscard]] std::uint64_t dropped() const noexcept
    {
        return lost.load(std::memory_order_relaxed) + (mPublisher ? mPublisher->dropped() : 0);
    }

    [[nodiscard]] std::string const& address() const noexcept
    {
        return mAddress;
    }

    [[nodiscard]] bool drainsRequests() const noexcept
    {
        return mOptions.drainRequests;
    }

    std::atomic<std::uint64_t> lost{0};

private:
    /// Enough for about 12,000 finished requests between two polls.
    static constexpr std::size_t kMaxFinishedBytes = std::size_t{2} << 20;
    /// TensorRT-LLM's default ring size. A poll that finds a quarter of it full halves the interval.
    static constexpr std::size_t kRing = 1000;

    void serve()
    {
        trtllm_exporter_options options{};
        options.size = sizeof(options);
        options.listen = mOptions.listen.c_str();
        options.telemetry_path = mOptions.telemetryPath.c_str();
        options.model = mOptions.name.model.c_str();
        options.version = mOptions.name.version.c_str();
        options.engine_version = mOptions.engineVersion.c_str();
        options.stale_after_ms = static_cast<std::uint64_t>(mOptions.staleAfter.count());
        Json settings;
        settings.texts(mOptions.publisher.config);
        std::string const config(settings.text());
        options.config = config.c_str();
        char text[512] = "";
        // The server's thread must not handle the host's signals.
        sigset_t all;
        sigset_t before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        mServer = trtllm_exporter_start(&options, text, sizeof(text));
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (mServer == nullptr)
        {
            log(text);
            return;
        }
        Forks::opened(trtllm_exporter_listener(mServer));
        trtllm_exporter_address(mServer, text, sizeof(text));
        mAddress = text;
        log("serving http://" + mAddress + mOptions.telemetryPath);
    }

    void stopThread() noexcept
    {
        auto ended = false;
        {
            std::unique_lock lock(mMutex);
            mStopped = true;
            mWake.notify_all();
            ended = mWake.wait_for(lock, mOptions.stopTimeout, [this] { return mEnded; });
        }
        if (ended || !mShared)
        {
            if (!ended)
            {
                log("stop() waits until the executor returns its statistics");
            }
            ::pthread_join(mThread, nullptr);
            return;
        }
        {
            // From here on the polling thread uses neither the server nor the publisher.
            std::lock_guard const lock(mOutputs);
            mClosed = true;
        }
        log("stop() does not wait for the executor's statistics any longer; its last records are lost");
        ::pthread_detach(mThread);
    }

    void run() noexcept
    {
        auto pause = mOptions.interval;
        auto slow = false;
        for (bool stopped = false; !stopped;)
        {
            try
            {
                {
                    std::unique_lock lock(mMutex);
                    stopped = mWake.wait_for(lock, pause, [this] { return mStopped; });
                }
                if (stopped && slow)
                {
                    break; // another slow call would delay stop() further
                }
                // The last poll fetches what the Executor still holds when stop() is called.
                auto const begun = std::chrono::steady_clock::now();
                poll(stopped);
                slow = std::chrono::steady_clock::now() - begun > mOptions.stopTimeout;
                pause = std::clamp(mDrained > kRing / 4 ? pause / 2 : pause * 5 / 4 + std::chrono::milliseconds(1), std::chrono::milliseconds(1),
                    std::max(mOptions.interval, std::chrono::milliseconds(1)));
            }
            catch (...) // NOLINT(bugprone-empty-catch): out of memory; the next poll tries again
            {
            }
        }
        std::lock_guard const lock(mMutex);
        mEnded = true;
        mWake.notify_all();
    }

    void poll(bool last)
    {
        mDrained = 0;
        mRows.clear();
        auto const begun = std::chrono::steady_clock::now();
        auto const failure = mPoll(*this);
        std::lock_guard const outputs(mOutputs);
        if (mClosed)
        {
            return;
        }
        if (mServer != nullptr)
        {
            {
                std::lock_guard const lock(mMutex);
                mRows.append(mFinished);
                mFinished.clear();
            }
            auto const took = std::chrono::steady_clock::now() - begun;
            trtllm_exporter_absorb(mServer, mRows.bytes().data(), mRows.bytes().size(),
                static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()),
                failure.empty() ? nullptr : failure.c_str());
        }
        if (std::exchange(mFailing, !failure.empty()) == failure.empty() && !last)
        {
            log(failure.empty() ? "the executor answers again" : "cannot read statistics: " + failure);
        }
    }

    void log(std::string_view text) noexcept
    {
        try
        {
            mOptions.publisher.log(text);
        }
        catch (...) // NOLINT(bugprone-empty-catch): the callback is empty or threw; there is no other place to log
        {
        }
    }

    Poll mPoll;
    Options mOptions;
    bool mShared;
    std::optional<Publisher> mPublisher;
    trtllm_exporter_server* mServer{nullptr};
    std::string mAddress;
    pthread_t mThread{};
    bool mStarted{false};
    std::mutex mMutex;
    std::condition_variable mWake;
    bool mStopped{false};    // guarded by mMutex
    bool mEnded{false};      // the thread has ended; guarded by mMutex
    Rows mFinished;          // guarded by mMutex
    std::mutex mOutputs;     // held while the thread uses the server and the publisher; taken before mMutex
    bool mClosed{false};     // guarded by mOutputs
    Rows mRows;              // used by mThread only
    std::size_t mDrained{0}; // used by mThread only
    bool mFailing{false};    // used by mThread only
};

/// The first line of an exception's text. TensorRT-LLM appends the call stack.
inline std::string firstLine(char const* what)
{
    std::string_view const text(what);
    return std::string(text.substr(0, text.find('\n')));
}

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
