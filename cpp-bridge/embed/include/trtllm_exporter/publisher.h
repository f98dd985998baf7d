#pragma once

// Publishes TensorRT-LLM's statistics to trtllm-exporter's ingest socket, from inside your server.
//
//     trtllm_exporter::Publisher publisher("/run/trtllm-exporter/ingest.sock", "llama-3-8b");
//     for (auto const& record : executor.getLatestIterationStats()) { publisher.publish(record); }
//     publisher.publish(response); // finished requests with OutputConfig::returnPerfMetrics
//
// One header, C++17 (GCC 11 or later), POSIX, no other dependency. It includes no header of TensorRT-LLM and asks at
// compile time which members your release's structs have. Nothing here throws, blocks on the exporter or raises
// SIGPIPE: records wait in a bounded buffer, of which the oldest are lost and counted.

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

/// One line about a change of state: connected, not connected and why, records being lost.
using Log = std::function<void(std::string_view)>;

/// To standard error, in one write.
inline void logToStderr(std::string_view text)
{
    auto const line = "trtllm_exporter: " + std::string(text) + "\n";
    static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
}

struct PublisherOptions
{
    /// What may wait while the exporter does not read, bytes. A record is about 900.
    std::size_t bufferBytes = std::size_t{4} << 20;
    /// How long a record may wait for others to travel with. Each wake-up of the sender costs your server some 20 µs.
    std::chrono::milliseconds linger{50};
    /// How long the destructor may take to deliver what waits.
    std::chrono::milliseconds farewell{200};
    Log log = logToStderr;
};

namespace detail
{

/// Every member of upstream's statistics, of every release. A struct's JSON object has those that it has.
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

// Also what tells the kinds of records apart.
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

/// kENCODER_IN_PROGRESS came with 0.11 and moved the numbers of those after it; the last two reasons after 0.15.
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
// As TensorRT-LLM's Python side calls them.
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

/// Why a request ended; null where the release or the engine does not say.
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

/// JSON text, growing. Keys and numbers dominate, so room is asked for once for both.
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

    /// A string's characters with what JSON wants escaped.
    void escaped(std::string_view text)
    {
        for (auto const c : text)
        {
            reserve(kNumber);
            if (c == '"' || c == '\\')
            {
                *mAt++ = '\\';
            }
            // Control characters are no part of any name.
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
        mBegin[start] = '{'; // the first field's comma
        *mAt++ = '}';
    }

private:
    static constexpr std::size_t kNumber = 40;

    template <std::size_t N, class Value>
    void field(char const (&key)[N], Value const& value)
    {
        if constexpr (IsOptional<Value>::value)
        {
            // What is absent is left out, which reads as null does.
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

    /// False: there is nothing to say.
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
            // A clock's zero is upstream's "never". Nanoseconds in decimal, because a double would round them.
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

/// Whole lines in a fixed number of bytes; the oldest make room. Memory is touched only as far as it is needed.
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

    /// How many lines were lost: older ones, or this one if it does not fit at all.
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

    /// Whole lines of at most `most` bytes together, or one longer line.
    void take(std::string& to, std::size_t most)
    {
        auto length = std::min(most, mUsed);
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
        // An empty ring starts over, so that a reader that keeps up costs few pages.
        mHead = mUsed == 0 ? 0 : (mHead + bytes) % mSize;
    }

    std::size_t mSize;
    std::unique_ptr<char[]> mBytes;
    std::size_t mHead{0};
    std::size_t mUsed{0};
};

/// fork() copies no thread and may copy a locked mutex. What was made before a fork is left alone in the child: never
/// locked, never joined, never freed. Its sockets are closed there, or the exporter would see a publisher that is gone.
class Forks
{
public:
    /// Changes in the child of every fork.
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
    // When the program or library is loaded, not with the first use: the guard of a local variable that another thread
    // is just making would never open in a child.
    static inline int const sRegistered = ::pthread_atfork(nullptr, nullptr, &inChild);
};

/// Starts `run(context)` on a thread that takes none of the host's signals.
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

/// The buffer and the thread that empties it into the socket.
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

    /// Delivers what waits as far as that is possible within the farewell, then ends the thread.
    void stop() noexcept
    {
        {
            std::lock_guard const lock(mMutex);
            mStopped = true;
            mDeadline = Clock::now() + mOptions.farewell;
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
                mLosing = true;
            }
            wake = before == 0 || (before < enough() && mRing.used() >= enough());
        }
        if (wake)
        {
            mWake.notify_one();
        }
    }

    /// Waits until everything pushed so far is with the exporter.
    bool flush(std::chrono::milliseconds patience)
    {
        std::unique_lock lock(mMutex);
        ++mFlushes;
        mWake.notify_one();
        auto const done = mFlushed.wait_for(
            lock, patience, [this] { return mRing.used() == 0 && mOut.empty() && connected.load(); });
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

    enum class Told
    {
        kNothing,
        kPublishing,
        kFailing,
        kLosing,
    };

    /// So many bytes are sent without waiting for more, however many wait behind them.
    [[nodiscard]] std::size_t enough() const noexcept
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
            // Out of memory. Records are dropped from here on.
            tell(Told::kFailing, "publishing has ended: out of memory");
        }
        connected = false;
        if (mSocket >= 0)
        {
            Forks::close(mSocket);
        }
    }

    /// False: it is time to end.
    bool step()
    {
        if (mSocket < 0 && !connect())
        {
            std::unique_lock lock(mMutex);
            // Nobody is there to say farewell to.
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
                // Once a second it is seen whether the exporter is still there: an idle engine has nothing to send.
                auto const called = mWake.wait_for(
                    lock, std::chrono::seconds(1), [this] { return mStopped || mRing.used() > 0; });
                mWake.wait_for(lock, called ? mOptions.linger : std::chrono::milliseconds(0),
                    [this] { return mStopped || mFlushes > 0 || mRing.used() >= enough(); });
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
        // A line that the last connection took only half of is sent again whole, after the greeting.
        auto const begun = mSent == 0 ? std::string::npos : mOut.rfind('\n', mSent - 1);
        mOut.erase(0, begun == std::string::npos ? 0 : begun + 1);
        mOut.insert(0, mHello);
        mSent = 0;
        connected = true;
        return true;
    }

    bool failed(int error)
    {
        auto const why = std::generic_category().message(error);
        tell(Told::kFailing,
            "cannot publish to " + mPath + ": " + why
                + "; is trtllm-exporter running with --source socket:" + mPath + "? It is tried again; "
                + std::to_string(mRing.size() >> 10) + " KiB of records wait meanwhile, then the oldest are lost");
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
        // Full, or nothing to send: has the exporter gone? It never speaks, so anything to read is its end.
        pollfd peer{mSocket, static_cast<short>(mSent < mOut.size() ? POLLOUT | POLLRDHUP : POLLRDHUP), 0};
        auto const ready = ::poll(&peer, 1, mSent < mOut.size() ? 50 : 0);
        if (ready > 0 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        {
            disconnect();
            return;
        }
        // A fresh connection first takes what has waited, as fast as it can.
        if (mLosing.load(std::memory_order_relaxed) && mSent < mOut.size()
            && Clock::now() - mConnectedAt > std::chrono::seconds(1))
        {
            tell(Told::kLosing, mPath + " is not read fast enough: the oldest records are being lost");
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
            mLosing = false;
            auto const lost = dropped.load(std::memory_order_relaxed);
            auto const more = lost - mLostTold;
            if (mTold != Told::kPublishing)
            {
                tell(Told::kPublishing,
                    "publishing to " + mPath
                        + (more > 0 ? "; " + std::to_string(more) + " records were lost meanwhile" : ""));
                mLostTold = lost;
            }
        }
    }

    void disconnect()
    {
        connected = false;
        Forks::close(mSocket);
        mSocket = -1;
    }

    /// Once per change of state.
    void tell(Told now, std::string const& text) noexcept
    {
        if (std::exchange(mTold, now) == now)
        {
            return;
        }
        try
        {
            mOptions.log(text);
        }
        catch (...) // NOLINT(bugprone-empty-catch): the host's callback, or none; nobody else is to be told
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
    LineRing mRing;           // under the mutex
    bool mStopped{false};     // under the mutex
    int mFlushes{0};          // under the mutex
    Clock::time_point mDeadline;
    Clock::time_point mConnectedAt;
    std::atomic<bool> mLosing{false};
    std::string mOut;         // what the socket is to take next; emptied and filled under the mutex
    std::size_t mSent{0};     // of that
    int mSocket{-1};
    std::chrono::milliseconds mRetry{kFirstRetry};
    Told mTold{Told::kNothing};
    std::uint64_t mLostTold{0};
};

} // namespace detail

/// Publishes to one exporter. Every method may be called from any thread; in the child of a fork() they do nothing, and
/// a Publisher made there works.
class Publisher
{
public:
    /// `path`: of the exporter's `--source socket:PATH`. It may appear, vanish and come back at any time.
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
            // A different pid tells the exporter that the engine has started anew.
            hello.raw("\",\"pid\":" + std::to_string(::getpid()) + "}}\n");
            auto sender = std::make_unique<detail::Sender>(path, std::string(hello.text()), std::move(options));
            if (sender->start())
            {
                mSender = sender.release();
            }
        }
        catch (...) // NOLINT(bugprone-empty-catch): without memory for it there is no publisher, and all is dropped
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

    /// An IterationStats, a RequestStatsPerIteration, a RequestPerfMetrics, or a Response or Result, of which only
    /// finished ones with RequestPerfMetrics are sent. False: this one is certainly lost.
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

    /// One JSON object of the ingest socket's format, without a line end.
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

    /// Waits until everything published so far is with the exporter. False: it is not, after `patience`.
    bool flush(std::chrono::milliseconds patience) noexcept
    {
        try
        {
            return alive() && mSender->flush(patience);
        }
        catch (...)
        {
            return false;
        }
    }

    /// Records lost because the exporter was not there or did not read. It sees them as gaps in `iter`.
    [[nodiscard]] std::uint64_t dropped() const noexcept
    {
        return alive() ? mSender->dropped.load(std::memory_order_relaxed) : 0;
    }

    [[nodiscard]] bool connected() const noexcept
    {
        return alive() && mSender->connected.load(std::memory_order_relaxed);
    }

private:
    /// The exporter takes a MiB a line; the row of an active request is some 300 bytes.
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
                "not a record of TensorRT-LLM's statistics");
            line.object(record);
            mSender->push(line.text());
        }
        return true;
    }

    /// All rows in one line, because they are one iteration. A queued request's row says nothing else, so it is short.
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
                // What a line cannot hold is left out, except how a request ended: that is told only once.
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
