#pragma once

// A bounded ring of records. A full ring silently drops the oldest record, and a reader takes all records. As in
// TensorRT-LLM, readers cannot see how many records were dropped; only the simulator's truth() reports it.

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

    /// A ring with capacity 0 keeps no records.
    explicit StatsRing(std::size_t capacity)
        : mCapacity(capacity)
    {
    }

    void push(Record&& record)
    {
        std::lock_guard const lock(mMutex);
        if (mCapacity == 0)
        {
            return;
        }
        if (mRecords.size() >= mCapacity)
        {
            mRecords.pop_front();
            ++mCounts.lost;
        }
        mRecords.push_back(std::move(record));
        ++mCounts.pushed;
    }

    [[nodiscard]] Counts counts() const
    {
        std::lock_guard const lock(mMutex);
        return mCounts;
    }

    std::deque<Record> drain()
    {
        std::lock_guard const lock(mMutex);
        return std::exchange(mRecords, {});
    }

private:
    std::size_t const mCapacity;
    mutable std::mutex mMutex;
    std::deque<Record> mRecords;
    Counts mCounts{};
};

} // namespace tensorrt_llm::sim
