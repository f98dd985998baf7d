#pragma once

// A bounded ring of records: a full one silently loses its oldest, a reader takes all. As upstream, it tells nobody
// how many it lost; only the simulator's truth does.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

namespace tensorrt_llm::sim
{

template <class Record>
class StatsRing
{
public:
    struct Counts
    {
        std::uint64_t pushed;
        std::uint64_t lost;
    };

    /// A capacity of 0 keeps nothing.
    explicit StatsRing(std::size_t capacity)
        : mCapacity(capacity)
    {
    }

    [[nodiscard]] bool enabled() const
    {
        return mCapacity > 0;
    }

    Counts push(Record&& record)
    {
        std::lock_guard const lock(mMutex);
        if (mCapacity == 0)
        {
            return mCounts;
        }
        if (mRecords.size() >= mCapacity)
        {
            mRecords.pop_front();
            ++mCounts.lost;
        }
        mRecords.push_back(std::move(record));
        ++mCounts.pushed;
        return mCounts;
    }

    std::deque<Record> drain()
    {
        std::lock_guard const lock(mMutex);
        return std::exchange(mRecords, {});
    }

private:
    std::size_t const mCapacity;
    std::mutex mMutex;
    std::deque<Record> mRecords;
    Counts mCounts{};
};

} // namespace tensorrt_llm::sim
