#pragma once

// The options of an Exporter, and the thread that polls its Executor.

#include "trtllm_exporter/detail/abi.h"
#include "trtllm_exporter/detail/lines.h"
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

namespace trtllm_exporter
{
inline namespace development
{

struct Options
{
    /// The labels of this engine. EngineName::ofEngine(directory) derives them from the engine's folder.
    EngineName name;
    /// HOST:PORT to serve the page on. Port 0 picks a free port. Empty: no page. Exporters with the same address share
    /// one page, which shows each engine under its own name.
    std::string listen;
    std::string telemetryPath = "/metrics";
    /// Path of the sidecar's ingest socket. Empty: do not publish. But if `listen` is empty, too, publish to the
    /// sidecar's default path, /run/trtllm-exporter/ingest.sock.
    std::string socket;
    /// The longest time between two polls of the Executor.
    std::chrono::milliseconds interval{100};
    /// The page drops its load gauges when the Executor has not answered for this long.
    std::chrono::milliseconds staleAfter{15000};
    /// Set this to false if your server reads the Executor's request statistics itself. The Executor keeps request
    /// statistics only if its configuration enables them.
    bool drainRequests = true;
    /// The version of TensorRT-LLM, for the page's `engine_info`.
    std::string engineVersion;
    /// How long stop() waits for a running call of the Executor. Then stop() abandons the call and its records. Used
    /// only if the Exporter shares ownership of the Executor.
    std::chrono::milliseconds stopTimeout{300};
    /// The publisher's buffer and timeouts. The page uses the log callback and `config` in these options, too.
    PublisherOptions publisher;
};

/// The destinations that an Exporter reaches, and its errors.
struct Status
{
    /// HOST:PORT of the page. Empty if there is no page.
    std::string address;
    /// Why there is no page although Options::listen is set. Empty otherwise.
    std::string pageError;
    /// True if the publisher is connected to the sidecar.
    bool connected = false;
    /// Why the Exporter cannot reach the sidecar, or why the sidecar refuses the records. Empty otherwise, and before
    /// the first record.
    std::string socketError;
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
    /// Polls the Executor once and passes the records to take(). Returns an error message, empty on success.
    using Poll = std::function<std::string(Attachment&)>;

    /// `shared` means that the Executor stays valid during a poll, so stop() may return while a poll is still running.
    Attachment(Poll poll, void const* executor, Options options, bool shared)
        : mPoll(std::move(poll))
        , mExecutor(executor)
        , mOptions(std::move(options))
        , mShared(shared)
    {
        if (mExecutor != nullptr && gAttached.contains(mExecutor))
        {
            log("another Exporter reads this executor already, and each record reaches only one of them; attach once");
        }
        gAttached.add(mExecutor);
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
        // The thread shares ownership, because stop() may return before the thread ends.
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
        if (mPage != nullptr)
        {
            Forks::forget(trtllm_exporter_address(mPage, nullptr, 0));
            trtllm_exporter_close(mPage);
        }
        mPublisher.reset();
        gAttached.remove(mExecutor);
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
            writeLines(record, [this](std::string_view line) { pass(line); });
        }
    }

    /// Takes a response of the Executor, from any thread of the host.
    template <class Response>
    void observe(Response const& response)
    {
        writeLines(response,
            [this](std::string_view line)
            {
                if (mPublisher)
                {
                    mPublisher->publishLine(line);
                }
                if (mPage != nullptr)
                {
                    // The polling thread passes the line to the page, so that this costs the host's thread no time.
                    std::lock_guard const lock(mMutex);
                    if (auto const full = mFinished.push(line); full > 0)
                    {
                        lost.fetch_add(full, std::memory_order_relaxed);
                    }
                }
            });
    }

    [[nodiscard]] std::uint64_t dropped() const noexcept
    {
        return lost.load(std::memory_order_relaxed) + (mPublisher ? mPublisher->dropped() : 0);
    }

    [[nodiscard]] std::string const& address() const noexcept
    {
        return mAddress;
    }

    [[nodiscard]] Status status() const
    {
        Status status{mAddress, mPageError, false, {}};
        if (mPublisher)
        {
            status.connected = mPublisher->connected();
            status.socketError = mPublisher->error();
        }
        return status;
    }

    [[nodiscard]] bool drainsRequests() const noexcept
    {
        return mOptions.drainRequests;
    }

    std::atomic<std::uint64_t> lost{0};

private:
    /// Size of the buffer for finished requests: enough for about 4,000 between two polls.
    static constexpr std::size_t kMaxFinishedBytes = std::size_t{2} << 20;
    /// TensorRT-LLM's default ring size. A poll that finds more than a quarter of the ring full halves the interval.
    static constexpr std::size_t kRing = 1000;

    void serve()
    {
        Json text;
        text.raw("{\"listen\":\"");
        text.escaped(mOptions.listen);
        text.raw("\",\"telemetry_path\":\"");
        text.escaped(mOptions.telemetryPath);
        text.raw("\",\"engine_version\":\"");
        text.escaped(mOptions.engineVersion);
        auto const staleAfter = std::max<std::int64_t>(mOptions.staleAfter.count(), 0);
        text.raw("\",\"stale_after_ms\":" + std::to_string(staleAfter) + ",");
        text.raw(helloOf(mOptions.name, mOptions.publisher.config) + "}");
        auto const options = text.text();
        char answer[512] = "";
        // The server's thread must not handle the host's signals.
        sigset_t all;
        sigset_t before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        mPage = trtllm_exporter_open(options.data(), options.size(), answer, sizeof(answer));
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (mPage == nullptr)
        {
            mPageError = answer;
            log(mPageError);
            return;
        }
        Forks::opened(trtllm_exporter_address(mPage, answer, sizeof(answer)));
        mAddress = answer;
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
                pause = mDrained > kRing / 4 ? pause / 2 : pause * 5 / 4 + std::chrono::milliseconds(1);
                std::chrono::milliseconds const least(1);
                pause = std::clamp(pause, least, std::max(mOptions.interval, least));
            }
            catch (...) // NOLINT(bugprone-empty-catch): out of memory; the next poll tries again
            {
            }
        }
        std::lock_guard const lock(mMutex);
        mEnded = true;
        mWake.notify_all();
    }

    /// Only the polling thread calls this.
    void pass(std::string_view line)
    {
        if (mPublisher)
        {
            mPublisher->publishLine(line);
        }
        if (mPage != nullptr && trtllm_exporter_publish(mPage, line.data(), line.size()) != 0)
        {
            lost.fetch_add(1, std::memory_order_relaxed);
        }
    }

    void poll(bool last)
    {
        mDrained = 0;
        auto const begun = std::chrono::steady_clock::now();
        auto const failure = mPoll(*this);
        std::lock_guard const outputs(mOutputs);
        if (mClosed)
        {
            return;
        }
        if (mPage != nullptr)
        {
            std::string finished;
            {
                std::lock_guard const lock(mMutex);
                mFinished.take(finished, mFinished.used());
            }
            for (std::string_view rest = finished; !rest.empty(); rest.remove_prefix(rest.find('\n') + 1))
            {
                trtllm_exporter_publish(mPage, rest.data(), rest.find('\n'));
            }
            auto const took = std::chrono::steady_clock::now() - begun;
            trtllm_exporter_end_poll(mPage,
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
    void const* mExecutor;
    Options mOptions;
    bool mShared;
    std::optional<Publisher> mPublisher;
    trtllm_exporter_engine* mPage{nullptr};
    std::string mAddress;
    std::string mPageError;
    pthread_t mThread{};
    bool mStarted{false};
    std::mutex mMutex;
    std::condition_variable mWake;
    bool mStopped{false};    // guarded by mMutex
    bool mEnded{false};      // the thread has ended; guarded by mMutex
    LineRing mFinished{kMaxFinishedBytes}; // guarded by mMutex
    std::mutex mOutputs;     // held while the thread uses the server and the publisher; taken before mMutex
    bool mClosed{false};     // guarded by mOutputs
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
