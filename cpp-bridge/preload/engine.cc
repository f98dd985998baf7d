// Drains one Executor for the exporter and keeps its records for the host.

#include "tee.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace trtllm_preload
{

template <class Record>
void Backlog<Record>::append(std::deque<Record>&& fresh)
{
    // These records are already published. If memory runs out here, the host loses them but the exporter does not.
    if (records.empty())
    {
        records.swap(fresh);
    }
    else
    {
        records.insert(records.end(), std::make_move_iterator(fresh.begin()), std::make_move_iterator(fresh.end()));
    }
    while (records.size() > capacity)
    {
        records.pop_front();
    }
}

template <class Record>
std::deque<Record> Backlog<Record>::takeWith(std::deque<Record>&& fresh)
{
    if (records.empty())
    {
        return std::move(fresh);
    }
    append(std::move(fresh));
    return std::exchange(records, {});
}

template struct Backlog<tle::IterationStats>;
template struct Backlog<tle::RequestStatsPerIteration>;

double Engine::drain(bool all) noexcept
{
    auto* const canEnqueue = sdk.get<bool(void const*)>(Function::kCanEnqueue);
    auto* const drainIterations = sdk.get<Iterations(void*)>(Function::kIterations);
    auto* const drainRequests = sdk.get<Requests(void*)>(Function::kRequests);
    // The real functions read only the pointer inside the Executor, so a copy of the pointer works as an Executor. The
    // host may have moved the original.
    void* executor = implementation;
    if (implementation == nullptr || !sdk.matches() || canEnqueue == nullptr || drainIterations == nullptr)
    {
        return 0.0;
    }
    double full = 0.0;
    try
    {
        if (!canEnqueue(&executor))
        {
            return 0.0;
        }
        if (!std::exchange(iterations.hostDrains, false) || all)
        {
            auto fresh = drainIterations(&executor);
            if (!sdk.canRead(fresh))
            {
                // Both empty() and the swap of two std::deques leave the records untouched.
                owesRecords = !fresh.empty();
                hasUnreadable = true;
                unreadable->swap(fresh);
                return 0.0;
            }
            publish(fresh);
            full = static_cast<double>(fresh.size()) / static_cast<double>(std::max<std::size_t>(iterations.capacity, 1));
            iterations.append(std::move(fresh));
        }
        auto const hostDrainsRequests = std::exchange(requests.hostDrains, false) && !all;
        if (drainRequests != nullptr && requests.capacity > 0 && !hostDrainsRequests && sdk.canReadRequests())
        {
            auto rows = drainRequests(&executor);
            publish(rows);
            full = std::max(full, static_cast<double>(rows.size()) / static_cast<double>(requests.capacity));
            requests.append(std::move(rows));
        }
    }
    catch (...) // NOLINT(bugprone-empty-catch): the Executor shut down meanwhile; the host's own calls report it
    {
    }
    return full;
}

} // namespace trtllm_preload
