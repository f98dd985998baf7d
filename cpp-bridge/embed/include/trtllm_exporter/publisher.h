#pragma once

// Publishes TensorRT-LLM's statistics from inside your server to trtllm-exporter's ingest socket.
//
//     trtllm_exporter::Publisher publisher("/run/trtllm-exporter/ingest.sock", "llama-3-8b");
//     for (auto const& record : executor.getLatestIterationStats()) { publisher.publish(record); }
//     publisher.publish(response); // finished requests with OutputConfig::returnPerfMetrics
//
// One header, C++17 (GCC 11 or later), POSIX, no other dependency. It includes no header of TensorRT-LLM and detects at
// compile time which members your release's structs have. Nothing here throws, raises SIGPIPE or blocks on the
// exporter, except flush() and the destructor, which wait up to a timeout. Records wait in a bounded buffer; when it is
// full, the oldest are dropped and counted.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace trtllm_exporter
{

/// Receives one log line per change of state: connected, not connected and why, dropping records.
using Log = std::function<void(std::string_view)>;

/// Logs to standard error, with one write() call per line.
inline void logToStderr(std::string_view text)
{
    auto const line = "trtllm_exporter: " + std::string(text) + "\n";
    static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
}

struct PublisherOptions
{
    /// Size of the buffer for records that the exporter has not read yet, in bytes. A record takes about 900 bytes.
    std::size_t bufferBytes = std::size_t{4} << 20;
    /// How long to wait for more records before a send. Each wake-up of the sender thread costs about 20 µs of CPU
    /// time.
    std::chrono::milliseconds linger{50};
    /// How long the destructor may block to send buffered records.
    std::chrono::milliseconds flushTimeout{200};
    Log log = logToStderr;
};

namespace detail
{

// clang-format would indent this table like an expression.
// clang-format off
/// The members of TensorRT-LLM's statistics structs in all releases. A JSON object contains those that its struct has.
#define TRTLLM_EXPORTER_MEMBERS(X)                                                                                     \
    X(timestamp) X(iter) X(iterLatencyMS) X(newActiveRequestsQueueLatencyMS) X(numNewActiveRequests)                   \
    X(numActiveRequests) X(numQueuedRequests) X(numCompletedRequests) X(maxNumActiveRequests) X(maxBatchSizeStatic)    \
    X(maxBatchSizeTunerRecommended) X(maxBatchSizeRuntime) X(maxNumTokensStatic) X(maxNumTokensTunerRecommended)       \
    X(maxNumTokensRuntime) X(gpuMemUsage) X(cpuMemUsage) X(pinnedMemUsage) X(kvCacheStats) X(crossKvCacheStats)        \
    X(staticBatchingStats) X(inflightBatchingStats) X(specDecodingStats)                                               \
    X(maxNumBlocks) X(freeNumBlocks) X(usedNumBlocks) X(tokensPerBlock) X(allocTotalBlocks) X(allocNewBlocks)          \
    X(reusedBlocks) X(missedBlocks) X(cacheHitRate)                                                                    \
    X(numScheduledRequests) X(numContextRequests) X(numGenRequests) X(numPausedRequests) X(numCtxTokens)               \
    X(numGenTokens) X(emptyGenSlots) X(microBatchId) X(avgNumDecodedTokensPerIter) X(numCtxKvTokens)                   \
    X(numGenKvTokens) X(numQueuedContextRequests) X(numQueuedCtxTokens) X(numQueuedGenRequests)                        \
    X(numQueuedGenKvTokens) X(numPausedKvTokens)                                                                       \
    X(numDraftTokens) X(numAcceptedTokens) X(numRequestsWithDraftTokens) X(acceptanceLength) X(draftOverhead)          \
    X(id) X(stage) X(contextPrefillPosition) X(numGeneratedTokens) X(scheduled) X(paused) X(disServingStats)           \
    X(allocTotalBlocksPerRequest) X(allocNewBlocksPerRequest) X(reusedBlocksPerRequest) X(missedBlocksPerRequest)      \
    X(kvCacheHitRatePerRequest) X(kvCacheTransferMS) X(kvCacheSize)                                                    \
    X(firstIter) X(lastIter) X(timingMetrics) X(kvCacheMetrics) X(speculativeDecoding) X(arrivalTime)                  \
    X(firstScheduledTime) X(firstTokenTime) X(lastTokenTime) X(kvCacheTransferStart) X(kvCacheTransferEnd)             \
    X(numTotalAllocatedBlocks) X(numNewAllocatedBlocks) X(numReusedBlocks) X(numMissedBlocks) X(kvCacheHitRate)        \
    X(acceptanceRate) X(totalAcceptedDraftTokens) X(totalDraftTokens)
// clang-format on

// Has_<member> is true if a struct has the member. The members below the list identify the kind of a record.
#define TRTLLM_EXPORTER_HAS(member)                                                                                    \
    template <class T, class = void>                                                                                   \
    struct Has_##member : std::false_type                                                                              \
    {                                                                                                                  \
    };                                                                                                                 \
    template <class T>                                                                                                 \
    struct Has_##member<T, std::void_t<decltype(&T::member)>> : std::true_type                                         \
    {                                                                                                                  \
    };
TRTLLM_EXPORTER_MEMBERS(TRTLLM_EXPORTER_HAS)
TRTLLM_EXPORTER_HAS(requestStats)
TRTLLM_EXPORTER_HAS(requestPerfMetrics)
TRTLLM_EXPORTER_HAS(getResult)
TRTLLM_EXPORTER_HAS(isFinal)
TRTLLM_EXPORTER_HAS(finishReasons)
#undef TRTLLM_EXPORTER_HAS

template <class T>
struct IsOptional : std::false_type
{
};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type
{
};
template <class T>
struct IsTime : std::false_type
{
};
template <class Clock, class Duration>
struct IsTime<std::chrono::time_point<Clock, Duration>> : std::true_type
{
};

/// Release 0.11 added kENCODER_IN_PROGRESS, which renumbered the enumerators after it. Releases after 0.15 added
/// kTIMED_OUT and kCANCELLED. So enumerators are compared by name, and a missing one never matches.
#define TRTLLM_EXPORTER_NAMED(enumerator, name)                                                                        \
    template <class E, class = void>                                                                                   \
    struct Is_##enumerator                                                                                             \
    {                                                                                                                  \
        static constexpr char const* of(E) { return nullptr; }                                                         \
    };                                                                                                                 \
    template <class E>                                                                                                 \
    struct Is_##enumerator<E, std::void_t<decltype(E::enumerator)>>                                                    \
    {                                                                                                                  \
        static constexpr char const* of(E value) { return value == E::enumerator ? name : nullptr; }                   \
    };
TRTLLM_EXPORTER_NAMED(kQUEUED, "QUEUED")
TRTLLM_EXPORTER_NAMED(kENCODER_IN_PROGRESS, "ENCODER_IN_PROGRESS")
TRTLLM_EXPORTER_NAMED(kCONTEXT_IN_PROGRESS, "CONTEXT_IN_PROGRESS")
TRTLLM_EXPORTER_NAMED(kGENERATION_IN_PROGRESS, "GENERATION_IN_PROGRESS")
TRTLLM_EXPORTER_NAMED(kGENERATION_COMPLETE, "GENERATION_COMPLETE")
// The same texts as in TensorRT-LLM's Python API.
TRTLLM_EXPORTER_NAMED(kEND_ID, "stop")
TRTLLM_EXPORTER_NAMED(kSTOP_WORDS, "stop")
TRTLLM_EXPORTER_NAMED(kLENGTH, "length")
TRTLLM_EXPORTER_NAMED(kTIMED_OUT, "timeout")
TRTLLM_EXPORTER_NAMED(kCANCELLED, "cancelled")
#undef TRTLLM_EXPORTER_NAMED

template <template <class, class> class... Named, class E>
char const* nameOf(E value)
{
    char const* name = nullptr;
    static_cast<void>(((name = Named<E, void>::of(value)) || ...));
    return name;
}

/// Why a request ended. Null if the release or the engine does not report it.
template <class Result>
char const* finishReason([[maybe_unused]] Result const& result)
{
    if constexpr (Has_finishReasons<Result>::value)
    {
        return result.finishReasons.empty() ? nullptr
                                            : nameOf<Is_kEND_ID, Is_kSTOP_WORDS, Is_kLENGTH, Is_kTIMED_OUT, Is_kCANCELLED>(
                                                result.finishReasons.front());
    }
    else
    {
        return nullptr;
    }
}

/// Builds JSON text. A key and its number share one capacity check, because most of the text is keys and numbers.
class Json
{
public:
    [[nodiscard]] std::string_view text() const
    {
        return {mBegin, static_cast<std::size_t>(mAt - mBegin)};
    }

    void clear()
    {
        mAt = mBegin;
    }

    void raw(std::string_view text)
    {
        reserve(text.size());
        std::memcpy(mAt, text.data(), text.size());
        mAt += text.size();
    }

    /// Appends the characters of a string, escaped for JSON.
    void escaped(std::string_view text)
    {
        for (auto const c : text)
        {
            reserve(kNumber);
            if (c == '"' || c == '\\')
            {
                *mAt++ = '\\';
            }
            // No name contains control characters, so a space can replace them.
            *mAt++ = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
        }
    }

    template <class Struct>
    void object(Struct const& value)
    {
        auto const start = mAt - mBegin;
#define TRTLLM_EXPORTER_WRITE(member)                                                                                  \
    if constexpr (Has_##member<Struct>::value)                                                                         \
    {                                                                                                                  \
        field(",\"" #member "\":", value.member);                                                                      \
    }
        TRTLLM_EXPORTER_MEMBERS(TRTLLM_EXPORTER_WRITE)
#undef TRTLLM_EXPORTER_WRITE
        reserve(2);
        if (mAt - mBegin == start)
        {
            *mAt++ = '{';
        }
        mBegin[start] = '{'; // replaces the comma of the first field
        *mAt++ = '}';
    }

private:
    static constexpr std::size_t kNumber = 40;

    template <std::size_t N, class Value>
    void field(char const (&key)[N], Value const& value)
    {
        if constexpr (IsOptional<Value>::value)
        {
            // An absent value is left out. The exporter reads that like null.
            if (value)
            {
                field(key, *value);
            }
        }
        else
        {
            reserve(N + kNumber);
            auto* const before = mAt;
            std::memcpy(mAt, key, N - 1);
            mAt += N - 1;
            if (!this->value(value))
            {
                mAt = before;
            }
        }
    }

    /// Returns false if the value has no JSON form. The caller then removes the key.
    template <class Value>
    bool value(Value const& value)
    {
        if constexpr (std::is_same_v<Value, bool>)
        {
            raw(value ? "true" : "false");
        }
        else if constexpr (std::is_floating_point_v<Value>)
        {
            if (!std::isfinite(value))
            {
                return false;
            }
            number(value);
        }
        else if constexpr (std::is_integral_v<Value>)
        {
            number(value);
        }
        else if constexpr (std::is_enum_v<Value>)
        {
            auto const* const name = nameOf<Is_kQUEUED, Is_kENCODER_IN_PROGRESS, Is_kCONTEXT_IN_PROGRESS,
                Is_kGENERATION_IN_PROGRESS, Is_kGENERATION_COMPLETE>(value);
            raw("\"");
            raw(name == nullptr ? "UNKNOWN" : name);
            raw("\"");
        }
        else if constexpr (IsTime<Value>::value)
        {
            // TensorRT-LLM sets times that did not happen to the clock's zero. A double would round the nanoseconds.
            auto const since = std::chrono::duration_cast<std::chrono::nanoseconds>(value.time_since_epoch()).count();
            if (since <= 0)
            {
                return false;
            }
            number(since / 1000000000);
            auto fraction = since % 1000000000;
            *mAt = '.';
            for (int digit = 9; digit > 0; --digit, fraction /= 10)
            {
                mAt[digit] = static_cast<char>('0' + fraction % 10);
            }
            mAt += 10;
        }
        else if constexpr (std::is_convertible_v<Value const&, std::string_view>)
        {
            raw("\"");
            escaped(std::string_view(value).substr(0, 256));
            raw("\"");
        }
        else
        {
            object(value);
        }
        return true;
    }

    template <class Number>
    void number(Number value)
    {
        mAt = std::to_chars(mAt, mAt + kNumber, value).ptr;
    }

    void reserve(std::size_t more)
    {
        auto const used = static_cast<std::size_t>(mAt - mBegin);
        if (mSize - used >= more)
        {
            return;
        }
        mSize = std::max(mSize * 2, used + more);
        std::unique_ptr<char[]> grown(new char[mSize]);
        std::memcpy(grown.get(), mBegin, used);
        mHeap = std::move(grown);
        mBegin = mHeap.get();
        mAt = mBegin + used;
    }

    char mInline[2048];
    std::unique_ptr<char[]> mHeap;
    char* mBegin{mInline};
    char* mAt{mInline};
    std::size_t mSize{sizeof(mInline)};
};

/// A ring buffer of whole lines. When it is full, it drops the oldest lines. It touches only as many pages as it needs.
class LineRing
{
public:
    explicit LineRing(std::size_t bytes)
        : mSize(std::max<std::size_t>(bytes, 4096))
        , mBytes(new char[mSize])
    {
    }

    [[nodiscard]] std::size_t used() const
    {
        return mUsed;
    }

    [[nodiscard]] std::size_t size() const
    {
        return mSize;
    }

    /// Returns how many lines were dropped: older ones, or this one if it is longer than the buffer.
    std::size_t push(std::string_view line)
    {
        if (line.size() >= mSize)
        {
            return 1;
        }
        std::size_t lost = 0;
        for (; mSize - mUsed < line.size() + 1; ++lost)
        {
            drop(lineEnd());
        }
        auto const at = (mHead + mUsed) % mSize;
        auto const first = std::min(line.size(), mSize - at);
        std::memcpy(&mBytes[at], line.data(), first);
        std::memcpy(&mBytes[0], line.data() + first, line.size() - first);
        mBytes[(at + line.size()) % mSize] = '\n';
        mUsed += line.size() + 1;
        return lost;
    }

    /// Moves whole lines to the end of `to`: at most `maxBytes` bytes, or one longer line.
    void take(std::string& to, std::size_t maxBytes)
    {
        auto length = std::min(maxBytes, mUsed);
        while (length > 0 && mBytes[(mHead + length - 1) % mSize] != '\n')
        {
            --length;
        }
        length = length > 0 ? length : lineEnd();
        auto const first = std::min(length, mSize - mHead);
        to.append(&mBytes[mHead], first);
        to.append(&mBytes[0], length - first);
        drop(length);
    }

private:
    [[nodiscard]] std::size_t lineEnd() const
    {
        auto const first = std::min(mUsed, mSize - mHead);
        if (auto const* const end = std::memchr(&mBytes[mHead], '\n', first))
        {
            return static_cast<std::size_t>(static_cast<char const*>(end) - &mBytes[mHead]) + 1;
        }
        auto const* const end = std::memchr(&mBytes[0], '\n', mUsed - first);
        return end == nullptr ? mUsed : first + static_cast<std::size_t>(static_cast<char const*>(end) - &mBytes[0]) + 1;
    }

    void drop(std::size_t bytes)
    {
        mUsed -= bytes;
        // An empty ring restarts at 0, so it touches few pages if the exporter reads fast enough.
        mHead = mUsed == 0 ? 0 : (mHead + bytes) % mSize;
    }

    std::size_t mSize;
    std::unique_ptr<char[]> mBytes;
    std::size_t mHead{0};
    std::size_t mUsed{0};
};

/// Detects forks. fork() copies no threads and may copy a locked mutex, so the child never locks, joins or frees an
/// object that the parent created. The child closes the copied sockets; otherwise the exporter would not notice when
/// the parent disconnects.
class Forks
{
public:
    /// A number that changes in the child of every fork.
    static unsigned generation() noexcept
    {
        static_cast<void>(sRegistered);
        return sGeneration.load(std::memory_order_relaxed);
    }

    static void opened(int descriptor) noexcept
    {
        for (auto& slot : sDescriptors)
        {
            int empty = 0;
            if (slot.compare_exchange_strong(empty, descriptor))
            {
                return;
            }
        }
    }

    static void close(int descriptor) noexcept
    {
        forget(descriptor);
        ::close(descriptor);
    }

    static void forget(int descriptor) noexcept
    {
        for (auto& slot : sDescriptors)
        {
            int mine = descriptor;
            slot.compare_exchange_strong(mine, 0);
        }
    }

private:
    static void inChild()
    {
        sGeneration.fetch_add(1, std::memory_order_relaxed);
        for (auto& slot : sDescriptors)
        {
            if (auto const descriptor = slot.exchange(0))
            {
                ::close(descriptor);
            }
        }
    }

    static inline std::atomic<unsigned> sGeneration{0};
    static inline std::atomic<int> sDescriptors[64]{};
    // Registered when the program or library is loaded. A static local variable would deadlock in a child if another
    // thread was initializing it during the fork.
    static inline int const sRegistered = ::pthread_atfork(nullptr, nullptr, &inChild);
};

/// Starts `run(context)` on a new thread that blocks all signals, so that it never runs the host's signal handlers.
inline bool startThread(pthread_t& thread, char const* name, void* (*run)(void*), void* context) noexcept
{
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    auto const failed = ::pthread_create(&thread, nullptr, run, context);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (failed == 0)
    {
        ::pthread_setname_np(thread, name);
    }
    return failed == 0;
}

/// The buffer, and the thread that sends it to the socket.
class Sender
{
public:
    Sender(std::string path, std::string hello, PublisherOptions options)
        : mPath(std::move(path))
        , mHello(std::move(hello))
        , mOptions(std::move(options))
        , mRing(mOptions.bufferBytes)
    {
    }

    bool start() noexcept
    {
        return startThread(
            mThread, "trtllm-publish",
            [](void* self) -> void*
            {
                static_cast<Sender*>(self)->run();
                return nullptr;
            },
            this);
    }

    /// Sends buffered records for at most flushTimeout, then ends the thread.
    void stop() noexcept
    {
        {
            std::lock_guard const lock(mMutex);
            mStopped = true;
            mDeadline = Clock::now() + mOptions.flushTimeout;
        }
        mWake.notify_all();
        ::pthread_join(mThread, nullptr);
    }

    void push(std::string_view line)
    {
        bool wake = false;
        {
            std::lock_guard const lock(mMutex);
            auto const before = mRing.used();
            if (auto const lost = mRing.push(line); lost > 0)
            {
                dropped.fetch_add(lost, std::memory_order_relaxed);
                mDropping = true;
            }
            wake = before == 0 || (before < sendThreshold() && mRing.used() >= sendThreshold());
        }
        if (wake)
        {
            mWake.notify_one();
        }
    }

    /// Waits until all lines pushed so far are in the exporter's socket. Returns false after `timeout`.
    bool flush(std::chrono::milliseconds timeout)
    {
        std::unique_lock lock(mMutex);
        ++mFlushes;
        mWake.notify_one();
        auto const done = mFlushed.wait_for(
            lock, timeout, [this] { return mRing.used() == 0 && mOut.empty() && connected.load(); });
        --mFlushes;
        return done;
    }

    std::atomic<std::uint64_t> dropped{0};
    std::atomic<bool> connected{false};

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t kChunk = std::size_t{64} << 10;
    static constexpr std::chrono::milliseconds kFirstRetry{50};
    static constexpr std::chrono::milliseconds kLastRetry{1000};

    /// The state that was logged last.
    enum class State
    {
        kStarting,
        kPublishing,
        kFailing,
        kDropping,
    };

    /// With this many bytes in the buffer, the thread sends without lingering.
    [[nodiscard]] std::size_t sendThreshold() const noexcept
    {
        return std::min(kChunk, mRing.size() / 2);
    }

    void run() noexcept
    {
        try
        {
            while (step())
            {
            }
        }
        catch (...)
        {
            log(State::kFailing, "publishing stopped: out of memory; all further records are dropped");
        }
        connected = false;
        if (mSocket >= 0)
        {
            Forks::close(mSocket);
        }
    }

    /// Returns false when the thread must end.
    bool step()
    {
        if (mSocket < 0 && !connect())
        {
            std::unique_lock lock(mMutex);
            // Without a connection stop() ends the thread immediately, because buffered records cannot be sent.
            mWake.wait_for(lock, mRetry, [this] { return mStopped; });
            mRetry = std::min(mRetry * 2, kLastRetry);
            return !mStopped;
        }
        {
            std::unique_lock lock(mMutex);
            if (mOut.size() == mSent)
            {
                mOut.clear();
                mSent = 0;
                if (mRing.used() == 0 && mFlushes > 0)
                {
                    mFlushed.notify_all();
                }
                // An idle engine has nothing to send, so the thread wakes once a second to check the connection.
                auto const woken = mWake.wait_for(
                    lock, std::chrono::seconds(1), [this] { return mStopped || mRing.used() > 0; });
                mWake.wait_for(lock, woken ? mOptions.linger : std::chrono::milliseconds(0),
                    [this] { return mStopped || mFlushes > 0 || mRing.used() >= sendThreshold(); });
                mRing.take(mOut, kChunk);
                if (mOut.empty() && mStopped)
                {
                    return false;
                }
            }
            if (mStopped && Clock::now() >= mDeadline)
            {
                return false;
            }
        }
        send();
        return true;
    }

    bool connect()
    {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (mPath.size() >= sizeof(address.sun_path))
        {
            return failed(ENAMETOOLONG);
        }
        std::memcpy(address.sun_path, mPath.data(), mPath.size());
        auto const descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (descriptor < 0)
        {
            return failed(errno);
        }
        Forks::opened(descriptor);
        if (::connect(descriptor, reinterpret_cast<sockaddr const*>(&address), sizeof(address)) != 0)
        {
            auto const error = errno;
            Forks::close(descriptor);
            return failed(error);
        }
        mSocket = descriptor;
        mRetry = kFirstRetry;
        mConnectedAt = Clock::now();
        std::lock_guard const lock(mMutex);
        // If the last connection broke in the middle of a line, the whole line is sent again after the hello line.
        auto const begun = mSent == 0 ? std::string::npos : mOut.rfind('\n', mSent - 1);
        mOut.erase(0, begun == std::string::npos ? 0 : begun + 1);
        mOut.insert(0, mHello);
        mSent = 0;
        connected = true;
        return true;
    }

    bool failed(int error)
    {
        log(State::kFailing,
            "cannot publish to " + mPath + ": " + std::generic_category().message(error)
                + "; check that trtllm-exporter runs with --source socket:" + mPath + "; retrying, and buffering "
                + std::to_string(mRing.size() >> 10) + " KiB of records before the oldest are dropped");
        return false;
    }

    void send()
    {
        if (mSent < mOut.size())
        {
            auto const sent = ::send(mSocket, mOut.data() + mSent, mOut.size() - mSent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent >= 0)
            {
                mSent += static_cast<std::size_t>(sent);
                delivered();
                return;
            }
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            {
                disconnect();
                return;
            }
        }
        // The socket is full, or there is nothing to send: check whether the exporter closed the connection.
        pollfd peer{mSocket, static_cast<short>(mSent < mOut.size() ? POLLOUT | POLLRDHUP : POLLRDHUP), 0};
        auto const ready = ::poll(&peer, 1, mSent < mOut.size() ? 50 : 0);
        if (ready > 0 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        {
            disconnect();
            return;
        }
        // A new connection gets a second to send the backlog before this counts as a slow exporter.
        if (mDropping.load(std::memory_order_relaxed) && mSent < mOut.size()
            && Clock::now() - mConnectedAt > std::chrono::seconds(1))
        {
            log(State::kDropping,
                "the exporter does not read " + mPath + " fast enough; dropping the oldest records");
        }
    }

    void delivered()
    {
        std::size_t waiting = 0;
        {
            std::lock_guard const lock(mMutex);
            waiting = mRing.used();
        }
        if (waiting < mRing.size() / 4)
        {
            mDropping = false;
            auto const total = dropped.load(std::memory_order_relaxed);
            auto const fresh = total - mLoggedDropped;
            if (mState != State::kPublishing)
            {
                log(State::kPublishing,
                    "publishing to " + mPath
                        + (fresh > 0 ? "; " + std::to_string(fresh) + " records were dropped before" : ""));
                mLoggedDropped = total;
            }
        }
    }

    void disconnect()
    {
        connected = false;
        Forks::close(mSocket);
        mSocket = -1;
    }

    /// Logs `text` if the state changed.
    void log(State now, std::string const& text) noexcept
    {
        if (std::exchange(mState, now) == now)
        {
            return;
        }
        try
        {
            mOptions.log(text);
        }
        catch (...) // NOLINT(bugprone-empty-catch): the callback is empty or threw; there is no other place to log
        {
        }
    }

    std::string const mPath;
    std::string const mHello;
    PublisherOptions const mOptions;
    pthread_t mThread{};
    std::mutex mMutex;
    std::condition_variable mWake;
    std::condition_variable mFlushed;
    LineRing mRing;       // guarded by mMutex
    bool mStopped{false}; // guarded by mMutex
    int mFlushes{0};      // guarded by mMutex
    Clock::time_point mDeadline;
    Clock::time_point mConnectedAt;
    std::atomic<bool> mDropping{false};
    std::string mOut;     // the chunk being sent; emptied and filled under mMutex
    std::size_t mSent{0}; // how many bytes of mOut are sent
    int mSocket{-1};
    std::chrono::milliseconds mRetry{kFirstRetry};
    State mState{State::kStarting};
    std::uint64_t mLoggedDropped{0};
};

} // namespace detail

/// Publishes to one exporter. Any thread may call any method. In the child of a fork() a Publisher of the parent does
/// nothing, and a new Publisher works.
class Publisher
{
public:
    /// `path` is the PATH of the exporter's `--source socket:PATH`. The exporter may start, stop and restart at any
    /// time.
    explicit Publisher(std::string const& path, std::string const& model = "tensorrt_llm",
        std::string const& version = "1", PublisherOptions options = {}) noexcept
    {
        try
        {
            detail::Json hello;
            hello.raw("{\"hello\":{\"model\":\"");
            hello.escaped(model);
            hello.raw("\",\"version\":\"");
            hello.escaped(version);
            // A different pid tells the exporter that the engine restarted.
            hello.raw("\",\"pid\":" + std::to_string(::getpid()) + "}}\n");
            auto sender = std::make_unique<detail::Sender>(path, std::string(hello.text()), std::move(options));
            if (sender->start())
            {
                mSender = sender.release();
            }
        }
        catch (...) // NOLINT(bugprone-empty-catch): out of memory; the server runs without a publisher
        {
        }
    }

    ~Publisher()
    {
        if (alive())
        {
            mSender->stop();
            delete mSender;
        }
    }

    Publisher(Publisher const&) = delete;
    Publisher& operator=(Publisher const&) = delete;

    /// Publishes an IterationStats, a RequestStatsPerIteration, a RequestPerfMetrics, a Response or a Result. A
    /// Response or Result is sent only if it is final and has RequestPerfMetrics. Returns false if the record was
    /// dropped. A record that was accepted may still be dropped later; see dropped().
    template <class Record>
    bool publish(Record const& record) noexcept
    {
        try
        {
            return alive() && write(record);
        }
        catch (...)
        {
            mSender->dropped.fetch_add(1, std::memory_order_relaxed);
            return false;
        }
    }

    /// Publishes one JSON object in the format of the ingest socket. `line` must not contain a newline.
    bool publishLine(std::string_view line) noexcept
    {
        try
        {
            if (!alive() || line.find('\n') != std::string_view::npos)
            {
                return false;
            }
            mSender->push(line);
            return true;
        }
        catch (...)
        {
            return false;
        }
    }

    /// Waits until all records published so far are sent. Returns false if they are not sent after `timeout`.
    bool flush(std::chrono::milliseconds timeout) noexcept
    {
        try
        {
            return alive() && mSender->flush(timeout);
        }
        catch (...)
        {
            return false;
        }
    }

    /// Number of records dropped because the exporter was not running or did not read fast enough. The exporter detects
    /// dropped records by gaps in `iter`.
    [[nodiscard]] std::uint64_t dropped() const noexcept
    {
        return alive() ? mSender->dropped.load(std::memory_order_relaxed) : 0;
    }

    [[nodiscard]] bool connected() const noexcept
    {
        return alive() && mSender->connected.load(std::memory_order_relaxed);
    }

private:
    /// The exporter accepts lines of up to 1 MiB. The row of an active request takes about 300 bytes.
    static constexpr std::size_t kLine = std::size_t{1000} << 10;

    [[nodiscard]] bool alive() const noexcept
    {
        return mSender != nullptr && mGeneration == detail::Forks::generation();
    }

    template <class Record>
    bool write(Record const& record)
    {
        detail::Json line;
        if constexpr (detail::Has_getResult<Record>::value)
        {
            return record.hasError()
                || writeResult(record.getResult(), ",\"requestId\":" + std::to_string(record.getRequestId()), line);
        }
        else if constexpr (detail::Has_isFinal<Record>::value)
        {
            return writeResult(record, {}, line);
        }
        else if constexpr (detail::Has_timingMetrics<Record>::value)
        {
            line.raw("{\"perfMetrics\":");
            line.object(record);
            line.raw("}");
            mSender->push(line.text());
        }
        else if constexpr (detail::Has_requestStats<Record>::value)
        {
            writeRows(record, line);
        }
        else
        {
            static_assert(detail::Has_iter<Record>::value && detail::Has_numActiveRequests<Record>::value,
                "publish() takes IterationStats, RequestStatsPerIteration, RequestPerfMetrics, Response or Result");
            line.object(record);
            mSender->push(line.text());
        }
        return true;
    }

    /// Writes the rows of one iteration in one line. A queued request has no other values, so its row is short.
    template <class Record>
    void writeRows(Record const& record, detail::Json& line)
    {
        auto const start = "{\"iter\":" + std::to_string(record.iter) + ",\"requestStats\":[";
        std::string_view before = start;
        for (auto const& row : record.requestStats)
        {
            using Stage = std::decay_t<decltype(row.stage)>;
            if (line.text().size() >= kLine)
            {
                // The line is full, so further rows are left out. The end of a request is reported only once, so those
                // rows go into another line.
                if (row.stage != Stage::kGENERATION_COMPLETE)
                {
                    continue;
                }
                line.raw("]}");
                mSender->push(line.text());
                line.clear();
                before = start;
            }
            line.raw(before);
            if (row.stage == Stage::kQUEUED)
            {
                line.raw("{\"id\":" + std::to_string(row.id) + ",\"stage\":\"QUEUED\"}");
            }
            else
            {
                line.object(row);
            }
            before = ",";
        }
        if (!line.text().empty())
        {
            line.raw("]}");
            mSender->push(line.text());
        }
    }

    template <class Result>
    bool writeResult([[maybe_unused]] Result const& result, [[maybe_unused]] std::string const& id,
        [[maybe_unused]] detail::Json& line)
    {
        if constexpr (detail::Has_requestPerfMetrics<Result>::value)
        {
            if (result.isFinal && result.requestPerfMetrics)
            {
                line.raw("{\"perfMetrics\":");
                line.object(*result.requestPerfMetrics);
                line.raw(id);
                if (auto const* const reason = detail::finishReason(result))
                {
                    line.raw(",\"finishReason\":\"");
                    line.raw(reason);
                    line.raw("\"");
                }
                line.raw("}");
                mSender->push(line.text());
            }
        }
        return true;
    }

    unsigned mGeneration{detail::Forks::generation()};
    detail::Sender* mSender{nullptr};
};

} // namespace trtllm_exporter
