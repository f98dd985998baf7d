#pragma once

// A test replacement for the exporter's ingest socket. It accepts one publisher at a time and stores the text that it
// receives. Tests can make it stop reading, or destroy it.

#include "check.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

class Listener
{
public:
    explicit Listener(std::string path)
        : mPath(std::move(path))
    {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        CHECK(mPath.size() < sizeof(address.sun_path));
        mPath.copy(address.sun_path, sizeof(address.sun_path));
        ::unlink(mPath.c_str());
        mListening = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(::bind(mListening, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
        CHECK(::listen(mListening, 64) == 0);
        mThread = std::thread([this] { run(); });
    }

    ~Listener()
    {
        mStopped = true;
        mThread.join();
        ::close(mListening);
        ::unlink(mPath.c_str());
    }

    std::string text()
    {
        std::lock_guard const lock(mMutex);
        return mText;
    }

    std::atomic<bool> reading{true};
    std::atomic<bool> refusing{false}; ///< closes each connection after its first bytes and a wait of `patience`
    std::chrono::milliseconds patience{0};
    std::atomic<int> connections{0};
    std::atomic<int> ended{0};

private:
    void run()
    {
        while (!mStopped)
        {
            if (!readable(mListening))
            {
                continue;
            }
            auto const peer = ::accept(mListening, nullptr, nullptr);
            ++connections;
            while (!mStopped && (!reading || !readable(peer) || (readSome(peer) && !refusing)))
            {
                if (!reading)
                {
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
            }
            if (refusing)
            {
                std::this_thread::sleep_for(patience);
                static_cast<void>(readable(peer) && readSome(peer));
            }
            ::close(peer);
            ++ended;
        }
    }

    static bool readable(int descriptor)
    {
        pollfd wanted{descriptor, POLLIN, 0};
        return ::poll(&wanted, 1, 5) > 0;
    }

    bool readSome(int peer)
    {
        char bytes[16384];
        auto const got = ::read(peer, bytes, sizeof(bytes));
        if (got <= 0)
        {
            return false;
        }
        std::lock_guard const lock(mMutex);
        mText.append(bytes, static_cast<std::size_t>(got));
        return true;
    }

    std::string mPath;
    int mListening{-1};
    std::atomic<bool> mStopped{false};
    std::mutex mMutex;
    std::string mText;
    std::thread mThread;
};
