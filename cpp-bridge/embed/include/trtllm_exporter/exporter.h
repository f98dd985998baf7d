#pragma once

// The exporter inside your C++ server. It serves the Prometheus page from your process, publishes to a sidecar
// exporter, or both.
//
//     trtllm_exporter::Options options;
//     options.listen = "0.0.0.0:8002";
//     auto exporter = trtllm_exporter::Exporter::attach(executor, options);
//     for (auto const& response : executor->awaitResponses()) { exporter.observe(response); ... }
//
// Link libtrtllm_exporter (`pkg-config --libs trtllm_exporter`, or CMake's trtllm_exporter::trtllm_exporter).
// The Executor returns each statistics record once, so nothing else may read statistics after attach().
// Nothing here throws into your server or blocks on a peer.
// The polling thread holds a shared_ptr to the Executor during each poll. If you release yours meanwhile, that thread
// destroys the Executor. Call stop() first to destroy it on a thread of your choice.

#include "trtllm_exporter/detail/rows.h"
#include "trtllm_exporter/publisher.h"

#include <cstddef>
#include <cstdint>
#include <exception>

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
    /// The publisher's buffer and timeouts. Its log callback serves the whole library.
    PublisherOptions publisher;
};

namespace detail
{

/// The thread that polls the Executor, and the destinations of its records.
class Attachment
{
public:
    /// Fetches the Executor's records. Returns an error message, empty on success.
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

    /// Takes one record of the Executor. Only the polling thread calls this.
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
        options.model = mOptions.model.c_str();
        options.version = mOptions.version.c_str();
        options.engine_version = mOptions.engineVersion.c_str();
        options.stale_after_ms = static_cast<std::uint64_t>(mOptions.staleAfter.count());
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
                // The last poll fetches what the Executor still holds when stop() is called.
                poll(stopped);
                pause = std::clamp(mDrained > kRing / 4 ? pause / 2 : pause * 5 / 4, std::chrono::milliseconds(1),
                    std::max(mOptions.interval, std::chrono::milliseconds(1)));
            }
            catch (...) // NOLINT(bugprone-empty-catch): out of memory; the next poll tries again
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

    Drain mDrain;
    Options mOptions;
    std::optional<Publisher> mPublisher;
    trtllm_exporter_server* mServer{nullptr};
    std::string mAddress;
    pthread_t mThread{};
    bool mStarted{false};
    std::mutex mMutex;
    std::condition_variable mWake;
    bool mStopped{false};    // guarded by mMutex
    Rows mFinished;          // guarded by mMutex
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

/// Exports the statistics of one Executor. Any thread may call observe(), address() and dropped(); stop(), moves and
/// the destructor must not run at the same time as another call. In the child of a fork() every method does nothing.
class Exporter
{
public:
    Exporter() = default;

    /// Starts exporting immediately. If one part fails, for example because the port is in use, it logs the error and
    /// starts the other parts.
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
        catch (...) // NOLINT(bugprone-empty-catch): out of memory; the server runs without the exporter
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

    /// Takes a Response of the Executor. Finished responses with RequestPerfMetrics (set
    /// OutputConfig::returnPerfMetrics) give exact request times; all others are ignored.
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

    /// Polls a last time, then stops the page and the publisher. Takes at most a second, unless the Executor blocks.
    void stop() noexcept
    {
        if (alive())
        {
            mAttachment->stop();
            delete mAttachment;
        }
        // A fork copies no threads and may copy locked mutexes, so the child must not touch or free the copy.
        mAttachment = nullptr;
    }

    /// HOST:PORT of the page. Empty if there is none.
    [[nodiscard]] std::string address() const
    {
        return alive() ? mAttachment->address() : std::string();
    }

    /// Number of records dropped because the sidecar did not read them, or because a buffer was full.
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
            // Checked first, because the calls below throw an exception with a call stack where this is false.
            if (!executor->canEnqueueRequests())
            {
                return "the executor has been shut down, or this process is not the leader; attach in the leader";
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
            return "the executor threw an exception that is not a std::exception";
        }
    }

    unsigned mGeneration{detail::Forks::generation()};
    detail::Attachment* mAttachment{nullptr};
};

} // namespace trtllm_exporter
