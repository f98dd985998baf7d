#pragma once

// The connection to the exporter. It has no thread: each call sends what the socket takes without blocking.

#include "trtllm_exporter/detail/options.h"
#include "trtllm_exporter/detail/process.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/socket.h>
#include <sys/un.h>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// Many lines are sent in chunks of at least this size.
constexpr std::size_t kChunk = std::size_t{128} << 10;

/// Lines that the socket does not take now wait for the next call. Lines that find no room, or no connection, are dropped
/// and counted. start() or the first line opens the connection, so a worker rank never connects: it calls neither, and its
/// connection would look like one more engine.
class Connection
{
public:
    Connection(std::string path, std::string hello, PublisherOptions options)
        : mPath(std::move(path))
        , mHello(std::move(hello))
        , mOptions(std::move(options))
    {
    }

    Connection(Connection const&) = delete;
    Connection& operator=(Connection const&) = delete;

    /// Waits up to flushTimeout for the exporter, if lines wait.
    ~Connection()
    {
        try
        {
            flush(mOptions.flushTimeout);
        }
        catch (...) // NOLINT(bugprone-empty-catch): out of memory; the lines that wait are lost
        {
        }
        if (mSocket >= 0)
        {
            Forks::close(mSocket);
        }
    }

    /// From now on, send() connects also without lines, so that the exporter shows an idle engine.
    void start() noexcept
    {
        mStarted = true;
    }

    /// Sends whole lines. Without lines, it sends what waits, and reconnects if the exporter closed the connection.
    void send(std::string_view lines)
    {
        std::string news;
        {
            std::lock_guard const lock(mMutex);
            closeIfEnded();
            mStarted = mStarted || !lines.empty();
            if (mSocket >= 0 || (mStarted && connect()))
            {
                sendWaiting();
            }
            // If nothing waits, there is always room, so a small buffer cannot exclude a long line.
            auto const nothingWaits = waiting() == 0;
            if (mSocket >= 0 && (nothingWaits || waiting() + lines.size() <= mOptions.bufferBytes))
            {
                mText.append(lines);
                if (nothingWaits)
                {
                    sendWaiting();
                }
            }
            else if (!lines.empty())
            {
                drop(lines);
                if (mSocket >= 0 && !mDoubtful)
                {
                    report(State::kDropping, "the exporter does not read " + mPath + " fast enough; dropping records");
                }
            }
            news.swap(mNews);
        }
        if (!news.empty())
        {
            log(news, {});
        }
    }

    /// Returns true if all lines are in the exporter's socket. Waits for room in it, but not for a connection.
    bool flush(std::chrono::milliseconds timeout)
    {
        auto const deadline = Clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(1));
        for (;;)
        {
            send({});
            {
                std::lock_guard const lock(mMutex);
                if (waiting() == 0)
                {
                    return mSocket >= 0 || !mStarted;
                }
            }
            if (Clock::now() >= deadline)
            {
                return false;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
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

    [[nodiscard]] bool connected()
    {
        std::lock_guard const lock(mMutex);
        return mSocket >= 0 && !mDoubtful;
    }

    /// Why the exporter cannot be reached. Empty if it can.
    [[nodiscard]] std::string error()
    {
        std::lock_guard const lock(mMutex);
        return mError;
    }

    std::atomic<std::uint64_t> dropped{0};

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kRetry{100};
    /// Two connections that the exporter closes within this time count as refused. If the name is in use, the exporter
    /// waits a second for it before it closes a connection.
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

    // The caller of each function below holds mMutex.

    [[nodiscard]] std::size_t waiting() const
    {
        return mText.size() - mSent;
    }

    void drop(std::string_view lines)
    {
        dropped.fetch_add(
            static_cast<std::uint64_t>(std::count(lines.begin(), lines.end(), '\n')), std::memory_order_relaxed);
    }

    /// The exporter sends nothing, so the socket is readable only when the exporter has closed the connection.
    void closeIfEnded()
    {
        char byte = 0;
        auto const got = mSocket < 0 ? 1 : ::recv(mSocket, &byte, 1, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && !isTemporary(errno)))
        {
            disconnect();
        }
    }

    static bool isTemporary(int error)
    {
        return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS || error == ENOMEM;
    }

    void sendWaiting()
    {
        // Lines that are sent to a refused connection are lost. So lines wait until the exporter keeps the connection. But the
        // first byte is sent, because a publisher that hangs loses its name only to one that sends more than a hello.
        mDoubtful = mDoubtful && Clock::now() - mConnectedAt < kRefusal;
        auto const now = mDoubtful ? std::min<std::size_t>(waiting(), mSent == 0 ? 1 : 0) : waiting();
        if (now > 0)
        {
            auto const sent = ::send(mSocket, mText.data() + mSent, now, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0)
            {
                if (!isTemporary(errno))
                {
                    disconnect();
                }
                return;
            }
            mSent += static_cast<std::size_t>(sent);
            if (mSent > mText.size() / 2)
            {
                std::string(mText, mSent).swap(mText); // frees the memory, unlike erase()
                mSent = 0;
            }
        }
        if (waiting() == 0 && !mDoubtful)
        {
            auto const total = dropped.load(std::memory_order_relaxed);
            mError.clear();
            if (mState != State::kPublishing)
            {
                auto const fresh = total - std::exchange(mLoggedDropped, total);
                report(State::kPublishing,
                    "publishing to " + mPath
                        + (fresh > 0 ? "; " + std::to_string(fresh) + " records were dropped before" : ""));
            }
        }
    }

    /// Tries at most once per kRetry.
    bool connect()
    {
        auto const now = Clock::now();
        if (now < mRetryAt)
        {
            return false;
        }
        mRetryAt = now + kRetry;
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
        // The kernel reduces this to its limit. What waits in the socket needs no later call to be sent.
        int const room = 1 << 20;
        ::setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        // A new socket has room for the hello line.
        if (::connect(descriptor, reinterpret_cast<sockaddr const*>(&address), sizeof(address)) != 0
            || ::send(descriptor, mHello.data(), mHello.size(), MSG_NOSIGNAL | MSG_DONTWAIT)
                != static_cast<ssize_t>(mHello.size()))
        {
            auto const error = errno;
            Forks::close(descriptor);
            return failed(error);
        }
        mSocket = descriptor;
        mConnectedAt = now;
        return true;
    }

    bool failed(int error)
    {
        mDoubtful = false;
        mError = "cannot publish to " + mPath + ": " + std::generic_category().message(error)
            + "; check that trtllm-exporter runs with --source socket:" + mPath + "; retrying, and dropping records";
        report(State::kFailing, mError);
        return false;
    }

    /// Drops what waits, because the exporter may have read a part of its first line.
    void disconnect()
    {
        Forks::close(std::exchange(mSocket, -1));
        drop(std::string_view(mText).substr(std::exchange(mSent, 0)));
        mText.clear();
        auto const now = Clock::now();
        auto const again = std::exchange(mDoubtful, now - mConnectedAt < kRefusal);
        // The first time, the exporter may have ended. Then the next attempt to connect fails.
        if (mDoubtful && again)
        {
            mRetryAt = now + kRefusal / 2;
            mError = "the exporter at " + mPath
                + " closes the connection; its log says why: name in use, --ingest.allow-uid, too many publishers; "
                  "retrying, and dropping records";
            report(State::kRefused, mError);
        }
    }

    /// Logs `text` after the call, without the mutex, if the state changed.
    void report(State now, std::string_view text)
    {
        if (std::exchange(mState, now) != now)
        {
            mNews = text;
        }
    }

    std::string const mPath;
    std::string const mHello;
    PublisherOptions const mOptions;
    std::atomic<bool> mStarted{false}; ///< the connection is needed
    std::mutex mMutex;
    // Guarded by mMutex:
    std::string mText; ///< whole lines; the first `mSent` bytes are sent
    std::size_t mSent{0};
    int mSocket{-1};
    Clock::time_point mRetryAt{};
    Clock::time_point mConnectedAt{};
    bool mDoubtful{false}; ///< the exporter soon closed the last connection, and may close this one, too
    State mState{State::kStarting};
    std::string mError;
    std::string mNews;
    std::uint64_t mLoggedDropped{0};
};

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
