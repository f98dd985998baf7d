#pragma once

// Lines that a publisher has given to the kernel and that the exporter has not read yet.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// A text of whole lines: first the lines in the socket, then lines that are not sent yet. If an exporter ends before
/// it has read the lines in its socket, they are sent again to the next exporter.
class Outgoing
{
public:
    [[nodiscard]] bool empty() const
    {
        return mSent == mText.size();
    }

    /// New lines are appended to this text.
    std::string& text()
    {
        return mText;
    }

    /// Sends as much as fits into the socket. Returns false if it is full or closed; errno says which.
    bool send(int socket)
    {
        auto const sent = ::send(socket, mText.data() + mSent, mText.size() - mSent, MSG_NOSIGNAL | MSG_DONTWAIT);
        mSent += static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
        mReset = sent < 0 && errno == ECONNRESET; // the kernel reports it once
        return sent >= 0;
    }

    /// Removes the lines that the exporter has read. The kernel's count of unread bytes includes its own structures, so
    /// a few more lines are kept.
    void forgetWhatWasRead(int socket)
    {
        int unread = 0;
        ::ioctl(socket, TIOCOUTQ, &unread);
        // Check for a closed socket after reading the count: the kernel empties a closed socket, so its count is 0.
        pollfd peer{socket, POLLRDHUP, 0};
        if (::poll(&peer, 1, 0) == 0)
        {
            forget(mSent - std::min(mSent, static_cast<std::size_t>(std::max(unread, 0))));
        }
    }

    /// Called after a disconnection. Lines that the exporter did not read, or read only in part, count as not sent.
    void disconnected(int socket)
    {
        int error = 0;
        socklen_t size = sizeof(error);
        ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
        // A reset means that some lines were not read.
        if (error != ECONNRESET && !mReset)
        {
            forget(mSent);
        }
        mSent = 0;
        mReset = false;
    }

private:
    /// Removes the whole lines within the first `bytes` bytes.
    void forget(std::size_t bytes)
    {
        auto const lines = std::string_view(mText).substr(0, bytes).rfind('\n') + 1;
        mText.erase(0, lines);
        mSent -= lines;
    }

    std::string mText;
    std::size_t mSent{0};
    bool mReset{false};
};

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
