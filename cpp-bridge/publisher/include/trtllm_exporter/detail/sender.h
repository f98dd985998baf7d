#pragma once

// The thread that sends lines to the exporter.

#include "trtllm_exporter/detail/line_ring.h"
#include "trtllm_exporter/detail/options.h"
#include "trtllm_exporter/detail/outgoing.h"
#include "trtllm_exporter/detail/process.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// The buffer, and the thread that sends it to the socket. The thread starts with the first record, so a worker rank
/// never connects: it has no records, and its connection would look like one more engine.
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

    /// Sends buffered records for at most flushTimeout, then ends the thread.
    void stop() noexcept
    {
        {
            std::lock_guard const lock(mMutex);
            mStopped = true;
            mDeadline = Clock::now() + mOptions.flushTimeout;
            if (!mStarted)
            {
                return;
            }
        }
        mWake.notify_all();
        ::pthread_join(mThread, nullptr);
    }

    void push(std::string_view line)
    {
        bool wake = false;
        {
            std::lock_guard const lock(mMutex);
            start();
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
        if (!mStarted)
        {
            return true; // nothing was published
        }
        ++mFlushes;
        mWake.notify_one();
        auto const done = mFlushed.wait_for(
            lock, timeout, [this] { return mRing.used() == 0 && !mSending && connected.load(); });
        --mFlushes;
        return done;
    }

    void log(std::string_view text, std::string_view reason) noexcept
    {
        try
        {
            mOptions.log(std::string(text).append(reason));
        }
        catch (...) // NOLINT(bugprone-empty-catch): the callback is empty or threw; there is no other place to log
        {
        }
    }

    /// Why the exporter cannot be reached. Empty if it can.
    [[nodiscard]] std::string error()
    {
        std::lock_guard const lock(mMutex);
        return failing ? mError : std::string();
    }

    std::atomic<std::uint64_t> dropped{0};
    std::atomic<bool> connected{false};
    std::atomic<bool> failing{false}; ///< the last attempt to connect failed

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t kChunk = std::size_t{128} << 10;
    static constexpr std::chrono::milliseconds kFirstRetry{50};
    static constexpr std::chrono::milliseconds kLastRetry{1000};
    /// A connection that the exporter closes within this time counts as refused. If the name is in use, the exporter
    /// waits a second for it before it closes the connection.
    static constexpr std::chrono::milliseconds kRefusal{2000};

    /// The state that was logged last.
    enum class State
    {
        kStarting,
        kPublishing,
        kFailing,
        kRefused,
        kDropping,
    };

    /// The caller holds mMutex.
    void start() noexcept
    {
        mStarted = mStarted
            || startThread(
                mThread, "trtllm-publish",
                [](void* self) -> void*
                {
                    static_cast<Sender*>(self)->run();
                    return nullptr;
                },
                this);
    }

    /// With this number of bytes in the buffer, the thread sends without waiting for more.
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
        if (mSocket < 0 && !(connect() && accepted()))
        {
            std::unique_lock lock(mMutex);
            // Without a connection stop() ends the thread immediately, because buffered records cannot be sent.
            mWake.wait_for(lock, mRetry, [this] { return mStopped; });
            mRetry = std::min(mRetry * 2, kLastRetry);
            return !mStopped;
        }
        {
            std::unique_lock lock(mMutex);
            if (mOut.empty())
            {
                mOut.forgetWhatWasRead(mSocket);
                mSending = false;
                if (mRing.used() == 0 && mFlushes > 0)
                {
                    mFlushed.notify_all();
                }
                // An idle engine has nothing to send, so the thread wakes once a second to check the connection.
                auto const woken
                    = mWake.wait_for(lock, std::chrono::seconds(1), [this] { return mStopped || mRing.used() > 0; });
                mWake.wait_for(lock, woken ? mOptions.linger : std::chrono::milliseconds(0),
                    [this] { return mStopped || mFlushes > 0 || mRing.used() >= sendThreshold(); });
                mRing.take(mOut.text(), kChunk);
                mSending = !mOut.empty();
                if (!mSending && mStopped)
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
        // A new socket has room for the hello line.
        if (::send(descriptor, mHello.data(), mHello.size(), MSG_NOSIGNAL | MSG_DONTWAIT)
            != static_cast<ssize_t>(mHello.size()))
        {
            auto const error = errno;
            Forks::close(descriptor);
            return failed(error);
        }
        mSocket = descriptor;
        mConnectedAt = Clock::now();
        return true;
    }

    /// Returns false if the exporter closes the connection because of the hello line. Records sent to a refused
    /// connection are lost. So if the exporter closed the previous connection early, this first waits for its answer.
    bool accepted()
    {
        std::unique_lock lock(mMutex);
        if (mClosedSoon)
        {
            mWake.wait_for(lock, kRefusal * 3 / 4, [this] { return mStopped; });
            pollfd peer{mSocket, POLLRDHUP, 0};
            if (::poll(&peer, 1, 0) != 0)
            {
                lock.unlock();
                disconnect();
                fail(State::kRefused,
                    "the exporter at " + mPath
                        + " closes the connection; either another process publishes with the same model and version, "
                          "or --ingest.allow-uid excludes this user; retrying");
                return false;
            }
        }
        mRetry = kFirstRetry;
        failing = false;
        connected = true;
        return true;
    }

    bool failed(int error)
    {
        fail(State::kFailing,
            "cannot publish to " + mPath + ": " + std::generic_category().message(error)
                + "; check that trtllm-exporter runs with --source socket:" + mPath + "; retrying, and buffering "
                + std::to_string(mRing.size() >> 10) + " KiB of records before the oldest are dropped");
        return false;
    }

    void send()
    {
        if (!mOut.empty())
        {
            if (mOut.send(mSocket))
            {
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
        pollfd peer{mSocket, static_cast<short>(mOut.empty() ? POLLRDHUP : POLLOUT | POLLRDHUP), 0};
        auto const ready = ::poll(&peer, 1, mOut.empty() ? 0 : 50);
        if (ready > 0 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        {
            disconnect();
            return;
        }
        // A new connection has one second to send the backlog. After this second, the exporter counts as slow.
        if (mDropping.load(std::memory_order_relaxed) && !mOut.empty()
            && Clock::now() - mConnectedAt > std::chrono::seconds(1))
        {
            log(State::kDropping, "the exporter does not read " + mPath + " fast enough; dropping the oldest records");
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
        mOut.disconnected(mSocket);
        connected = false;
        mClosedSoon = Clock::now() - mConnectedAt < kRefusal;
        Forks::close(mSocket);
        mSocket = -1;
    }

    void fail(State now, std::string const& text)
    {
        {
            std::lock_guard const lock(mMutex);
            mError = text;
            failing = true;
        }
        log(now, text);
    }

    /// Logs `text` if the state changed.
    void log(State now, std::string const& text) noexcept
    {
        if (std::exchange(mState, now) != now)
        {
            log(text, {});
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
    bool mStarted{false}; // guarded by mMutex
    bool mStopped{false}; // guarded by mMutex
    bool mSending{false}; // guarded by mMutex: lines of mOut are not sent yet
    int mFlushes{0};      // guarded by mMutex
    std::string mError;   // guarded by mMutex
    Clock::time_point mDeadline;
    Clock::time_point mConnectedAt;
    bool mClosedSoon{false}; // the exporter closed the last connection soon after it was opened
    std::atomic<bool> mDropping{false};
    Outgoing mOut;
    int mSocket{-1};
    std::chrono::milliseconds mRetry{kFirstRetry};
    State mState{State::kStarting};
    std::uint64_t mLoggedDropped{0};
};

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
