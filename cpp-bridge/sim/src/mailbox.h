#pragma once

// A queue of responses for the host. Knows request ids only.

#include "tensorrt_llm/executor/executor.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace tensorrt_llm::sim
{

class Mailbox
{
public:
    using Timeout = std::optional<std::chrono::milliseconds>;

    void put(executor::Response response);
    /// Wakes all waiting threads. Later calls do not wait.
    void close();

    /// Waits for at least one response, then returns all. With an `id`, only those of this request.
    [[nodiscard]] std::vector<executor::Response> take(std::optional<executor::IdType> id, Timeout const& timeout);
    [[nodiscard]] std::size_t ready(std::optional<executor::IdType> id) const;

private:
    [[nodiscard]] std::size_t readyLocked(std::optional<executor::IdType> id) const;

    mutable std::mutex mMutex;
    std::condition_variable mArrived;
    std::map<executor::IdType, std::vector<executor::Response>> mByRequest;
    bool mClosed{false};
};

} // namespace tensorrt_llm::sim
