#pragma once

// Passes responses from the engine's thread to the host's threads, which wait for them.

#include "tensorrt_llm/executor/executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tensorrt_llm::sim
{

class Mailbox
{
public:
    using Timeout = std::optional<std::chrono::milliseconds>;
    using Responses = std::vector<executor::Response>;

    void put(executor::Response response)
    {
        {
            std::lock_guard const lock(mMutex);
            mResponses.push_back(std::move(response));
        }
        mArrived.notify_all();
    }

    /// Wakes all waiting threads. Later calls do not wait.
    void close()
    {
        {
            std::lock_guard const lock(mMutex);
            mClosed = true;
        }
        mArrived.notify_all();
    }

    /// Waits for at least one response, then returns all. With an `id`, only the responses to this request count.
    [[nodiscard]] Responses take(std::optional<executor::IdType> id, Timeout const& timeout)
    {
        std::unique_lock lock(mMutex);
        auto const isOther = [id](auto const& response) { return id && response.getRequestId() != *id; };
        auto const wanted
            = [&] { return mClosed || !std::all_of(mResponses.begin(), mResponses.end(), isOther); };
        if (timeout)
        {
            mArrived.wait_for(lock, *timeout, wanted);
        }
        else
        {
            mArrived.wait(lock, wanted);
        }
        auto const others = std::stable_partition(mResponses.begin(), mResponses.end(), isOther);
        Responses taken(std::make_move_iterator(others), std::make_move_iterator(mResponses.end()));
        mResponses.erase(others, mResponses.end());
        return taken;
    }

    [[nodiscard]] std::size_t ready() const
    {
        std::lock_guard const lock(mMutex);
        return mResponses.size();
    }

private:
    mutable std::mutex mMutex;
    std::condition_variable mArrived;
    Responses mResponses;
    bool mClosed{false};
};

} // namespace tensorrt_llm::sim
