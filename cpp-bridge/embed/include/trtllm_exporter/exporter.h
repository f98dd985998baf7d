#pragma once

// The exporter inside your C++ server: serves the Prometheus page from your process, publishes to a sidecar, or both.
//
//     trtllm_exporter::Options options;
//     options.listen = "0.0.0.0:8002";
//     auto exporter = trtllm_exporter::Exporter::attach(executor, options);
//     for (auto const& response : executor->awaitResponses()) { exporter.observe(response); ... }
//
// Link libtrtllm_exporter (`pkg-config --libs trtllm_exporter`, or CMake's trtllm_exporter::trtllm_exporter). The
// Executor's statistics drain: from attach() on, let nothing else read them. Nothing here throws into your server or
// waits for a peer. To destroy the Executor on a thread of your choice, stop() first: the exporter holds it only while
// it asks, but might then hold it last.

#include "trtllm_exporter/detail/rows.h"
#include "trtllm_exporter/publisher.h"

#include <cstddef>
#include <cstdint>
#include <exception>

extern "C"
{
    // Of libtrtllm_exporter; used by this header alone.
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

struct Options
{
    std::string model = "tensorrt_llm";
    std::string version = "1";
    /// HOST:PORT of the page; port 0 is any free one. Empty: no page.
    std::string listen;
    std::string telemetryPath = "/metrics";
    /// Path of a sidecar's ingest socket. Empty: not published. With neither, the sidecar's default path.
    std::string socket;
    std::chrono::milliseconds interval{100};
    /// After this long without news the page's load gauges leave it.
    std::chrono::milliseconds staleAfter{15000};
    /// Off where the Executor's request statistics are yours. They exist only if you configured them.
    bool drainRequests = true;
    /// Of TensorRT-LLM, for the page's `engine_info`.
    std::string engineVersion;
    /// The publisher's buffer, and where this library tells a change of state.
    PublisherOptions publisher;
};

namespace detail
{

/// Where records go, and the thread that fetches them.
class Attachment
{
public:
    /// Fetches what the Executor has; why it could not, or nothing.
    using Drain = std::function<std::string(Attachment&)>;

    Attachment(Drain drain, Options options)
        : mDrain(std::move(drain))
        , mOptions(std::move(options))
    {
        if (mOptions.listen.empty() && mOptions.socket.empty())
        {
            mOptions.socket = "/run/trtllm-exporter/ingest.sock";
        }
        if (!mOptions.socket.empty())
        {
            mPublisher.emplace(mOptions.socket, mOptions.model, mOptions.version, mOptions.publisher);
        }
        if (!mOptions.listen.empty())
        {
            serve();
        }
    }

    bool start() noexcept
    {
        return mStarted = startThread(
            mThread, "trtllm-poll",
            [](void* self) -> void*
            {
                static_cast<Attachment*>(self)->run();
                return nullptr;
            },
            this);
    }

    void stop() noexcept
    {
        {
            std::lock_guard const lock(mMutex);
            mStopped = true;
        }
        mWake.notify_all();
        if (mStarted)
        {
            ::pthread_join(mThread, nullptr);
        }
        if (mServer != nullptr)
        {
            Forks::forget(trtllm_exporter_listener(mServer));
            trtllm_exporter_stop(mServer);
        }
        mPublisher.reset();
    }

    /// One record of the Executor, from the thread above.
    template <class Record>
    void take(Record const& record)
    {
        ++mDrained;
        if (mPublisher)
        {
            mPublisher->publish(record);
        }
        if (mServer != nullptr)
        {
            if constexpr (Has_requestStats<Record>::value)
            {
                mRows.requests(record);
            }
            else
            {
                mRows.record(record);
            }
        }
    }

    /// A finished request, from any thread of the host.
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
                    if (mFinished.bytes().size() < kMostFinished)
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
    /// Some 4000 finished requests between two polls.
    static constexpr std::size_t kMostFinished = std::size_t{2} << 20;
    /// Upstream's default ring; when a quarter of it was full, polls come twice as often.
    static constexpr std::size_t kRing = 1000;

    void serve()
    {
        trtllm_exporter_options options{};
        options.size = sizeof(options);
        options.listen = mOptions.listen.c_str();
        options.telemetry_path = mOptions.telemetryPath.c_str();
        options.model = mOptions.model.c_str();
        options.version = mOptions.version.c_str();
        options.engine_version = mOptions.engineVersion.c_str();
        options.stale_after_ms = static_cast<std::uint64_t>(mOptions.staleAfter.count());
        char text[512] = "";
        // Its thread takes none of the host's signals either.
        sigset_t all;
        sigset_t before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        mServer = trtllm_exporter_start(&options, text, sizeof(text));
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (mServer == nullptr)
        {
            tell(text);
            return;
        }
        Forks::opened(trtllm_exporter_listener(mServer));
        trtllm_exporter_address(mServer, text, sizeof(text));
        mAddress = text;
        tell("serving http://" + mAddress + mOptions.telemetryPath);
    }

    void run() noexcept
    {
        auto pause = mOptions.interval;
        for (bool stopped = false; !stopped;)
        {
            try
            {
                {
                    std::unique_lock lock(mMutex);
                    stopped = mWake.wait_for(lock, pause, [this] { return mStopped; });
                }
                // Also when it is time to stop: what the Executor still has.
                poll(stopped);
                pause = std::clamp(mDrained > kRing / 4 ? pause / 2 : pause * 5 / 4, std::chrono::milliseconds(1),
                    std::max(mOptions.interval, std::chrono::milliseconds(1)));
            }
            catch (...) // NOLINT(bugprone-empty-catch): out of memory; the next poll may find some
            {
            }
        }
    }

    void poll(bool last)
    {
        mDrained = 0;
        mRows.clear();
        auto const begun = std::chrono::steady_clock::now();
        auto const failure = mDrain(*this);
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
            tell(failure.empty() ? "the executor answers again" : "no statistics: " + failure);
        }
    }

    void tell(std::string_view text) noexcept
    {
        try
        {
            mOptions.publisher.log(text);
        }
        catch (...) // NOLINT(bugprone-empty-catch): the host's callback, or none; nobody else is to be told
        {
        }
    }

    Drain mDrain;
    Options mOptions;
    std::optional<Publisher> mPublisher;
    trtllm_exporter_server* mServer{nullptr};
    std::string mAddress;
    pthread_t mThread{};
    bool mStarted{false};
    std::mutex mMutex;
    std::condition_variable mWake;
    bool mStopped{false};   // under the mutex
    Rows mFinished;         // under the mutex
    Rows mRows;             // of the thread
    std::size_t mDrained{0}; // of the thread
    bool mFailing{false};   // of the thread
};

/// The first line; TensorRT-LLM's exceptions carry their stack after it.
inline std::string firstLine(char const* what)
{
    std::string_view const text(what);
    return std::string(text.substr(0, text.find('\n')));
}

} // namespace detail

/// An Executor's statistics on their way to Prometheus. Every method may be called from any thread but stop(), the
/// destructor and moves. In the child of a fork() it does nothing.
class Exporter
{
public:
    Exporter() = default;

    /// Starts at once. What cannot be done (a port that is taken) is told through the log, the rest is done.
    template <class Executor>
    [[nodiscard]] static Exporter attach(std::shared_ptr<Executor> const& executor, Options options = {}) noexcept
    {
        Exporter exporter;
        try
        {
            std::weak_ptr<Executor> const held(executor);
            auto attachment = std::make_unique<detail::Attachment>(
                [held](detail::Attachment& to) { return drain(held, to); }, std::move(options));
            if (!attachment->start())
            {
                attachment->stop();
                return exporter;
            }
            exporter.mAttachment = attachment.release();
        }
        catch (...) // NOLINT(bugprone-empty-catch): without memory for it the server runs unobserved
        {
        }
        return exporter;
    }

    ~Exporter()
    {
        stop();
    }

    Exporter(Exporter&& other) noexcept
        : mGeneration(other.mGeneration)
        , mAttachment(std::exchange(other.mAttachment, nullptr))
    {
    }

    Exporter& operator=(Exporter&& other) noexcept
    {
        if (this != &other)
        {
            stop();
            mGeneration = other.mGeneration;
            mAttachment = std::exchange(other.mAttachment, nullptr);
        }
        return *this;
    }

    /// A Response or Result you took from the Executor; finished ones with RequestPerfMetrics (set
    /// OutputConfig::returnPerfMetrics) give exact request times.
    template <class Response>
    void observe(Response const& response) noexcept
    {
        if (alive())
        {
            try
            {
                mAttachment->observe(response);
            }
            catch (...)
            {
                mAttachment->lost.fetch_add(1, std::memory_order_relaxed);
            }
        }
    }

    /// Fetches a last time, ends the page and the connection. Takes at most a second.
    void stop() noexcept
    {
        if (alive())
        {
            mAttachment->stop();
            delete mAttachment;
        }
        // What a fork copied is left as it is: its threads are not here, its locks may be held.
        mAttachment = nullptr;
    }

    /// Where the page is, HOST:PORT; empty if there is none.
    [[nodiscard]] std::string address() const
    {
        return alive() ? mAttachment->address() : std::string();
    }

    /// Records lost on the way to the sidecar or between polls.
    [[nodiscard]] std::uint64_t dropped() const noexcept
    {
        return alive() ? mAttachment->dropped() : 0;
    }

private:
    [[nodiscard]] bool alive() const noexcept
    {
        return mAttachment != nullptr && mGeneration == detail::Forks::generation();
    }

    template <class Executor>
    static std::string drain(std::weak_ptr<Executor> const& held, detail::Attachment& to)
    {
        try
        {
            auto const executor = held.lock();
            if (executor == nullptr)
            {
                return "the executor has been destroyed";
            }
            // Asked first: workers and stopped executors are a state, not an exception with a stack at every poll.
            if (!executor->canEnqueueRequests())
            {
                return "the executor has been shut down, or this process is not its leader";
            }
            for (auto const& record : executor->getLatestIterationStats())
            {
                to.take(record);
            }
            if (to.drainsRequests())
            {
                for (auto const& record : executor->getLatestRequestStats())
                {
                    to.take(record);
                }
            }
            return "";
        }
        catch (std::exception const& error)
        {
            return detail::firstLine(error.what());
        }
        catch (...)
        {
            return "the executor threw what is no std::exception";
        }
    }

    unsigned mGeneration{detail::Forks::generation()};
    detail::Attachment* mAttachment{nullptr};
};

} // namespace trtllm_exporter
