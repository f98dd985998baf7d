// Passes responses from the engine's thread to the host's threads, which block until there are some.

#include "mailbox.h"

#include <iterator>
#include <utility>

namespace tensorrt_llm::sim
{

void Mailbox::put(executor::Response response)
{
    {
        std::lock_guard const lock(mMutex);
        auto const id = response.getRequestId();
        mByRequest[id].push_back(std::move(response));
    }
    mArrived.notify_all();
}

void Mailbox::close()
{
    {
        std::lock_guard const lock(mMutex);
        mClosed = true;
    }
    mArrived.notify_all();
}

std::vector<executor::Response> Mailbox::take(std::optional<executor::IdType> id, Timeout const& timeout)
{
    std::unique_lock lock(mMutex);
    auto const there = [this, id] { return mClosed || readyLocked(id) > 0; };
    if (timeout)
    {
        mArrived.wait_for(lock, *timeout, there);
    }
    else
    {
        mArrived.wait(lock, there);
    }
    std::vector<executor::Response> taken;
    auto const first = id ? mByRequest.find(*id) : mByRequest.begin();
    auto const last = id && first != mByRequest.end() ? std::next(first) : mByRequest.end();
    for (auto entry = first; entry != last; ++entry)
    {
        taken.insert(taken.end(), std::make_move_iterator(entry->second.begin()),
            std::make_move_iterator(entry->second.end()));
    }
    mByRequest.erase(first, last);
    return taken;
}

std::size_t Mailbox::ready(std::optional<executor::IdType> id) const
{
    std::lock_guard const lock(mMutex);
    return readyLocked(id);
}

std::size_t Mailbox::readyLocked(std::optional<executor::IdType> id) const
{
    if (id)
    {
        auto const entry = mByRequest.find(*id);
        return entry == mByRequest.end() ? 0 : entry->second.size();
    }
    std::size_t count = 0;
    for (auto const& [request, responses] : mByRequest)
    {
        count += responses.size();
    }
    return count;
}

} // namespace tensorrt_llm::sim
