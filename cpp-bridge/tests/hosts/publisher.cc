// Tests publisher.h with a test listener instead of the exporter.

#include "publishing.h"

#include <csignal>
#include <set>
#include <vector>

#include <sys/wait.h>

void testLines();  // lines.cc
void testPoller(); // poller.cc

namespace
{

void recordsOfManyThreadsArriveOnce()
{
    Listener listener(kPath);
    constexpr std::size_t kThreads = 4;
    constexpr std::size_t kEach = 5000;
    Publisher publisher(kPath, "m", "1", CapturedLog().options(std::size_t{64} << 20));
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < kThreads; ++thread)
    {
        threads.emplace_back(
            [&publisher, thread]
            {
                for (std::size_t i = 0; i < kEach; ++i)
                {
                    publisher.publish(recordOf(thread * kEach + i));
                }
            });
    }
    for (auto& thread : threads)
    {
        thread.join();
    }
    CHECK(publisher.flush(60s) && publisher.dropped() == 0);
    CHECK(until([&] { return count(listener.text(), "\n") == kThreads * kEach + 1; }));
    auto const text = listener.text();
    for (auto const iter : {0UL, 4999UL, 5000UL, 19999UL})
    {
        CHECK(count(text, "\"iter\":" + std::to_string(iter) + ",") == 1);
    }
}

/// Adds the iteration numbers of the records in a text.
void addIterations(std::set<std::uint64_t>& found, std::string const& text)
{
    std::string const key = "\"iter\":";
    for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at + 1))
    {
        // The last line may be incomplete.
        if (text.find('\n', at) != std::string::npos)
        {
            found.insert(std::stoull(text.substr(at + key.size())));
        }
    }
}

void drainOfAThousandRecordsLosesNone()
{
    Listener listener(kPath);
    Publisher publisher(kPath, "m", "1", CapturedLog().patient());
    for (std::uint64_t i = 0; i < 1000; ++i)
    {
        publisher.publish(recordOf(i));
    }
    CHECK(until([&] { return count(listener.text(), "\"iter\":") == 1000; }));
    CHECK(publisher.dropped() == 0);
}

void exporterThatRestartsUnderLoadMissesNoRecord()
{
    auto listener = std::make_unique<Listener>(kPath);
    Publisher publisher(kPath, "m", "1", CapturedLog().options(32 << 20));
    std::atomic<bool> loading{true};
    std::uint64_t published = 0;
    std::thread host(
        [&]
        {
            for (; loading; ++published)
            {
                publisher.publish(recordOf(published));
                std::this_thread::sleep_for(1ms);
            }
        });
    std::set<std::uint64_t> arrived;
    for (int restart = 0; restart < 3; ++restart)
    {
        CHECK(until([&] { return count(listener->text(), "\n") > 100; }));
        // Now records stay in the socket, unread, until the listener is destroyed.
        listener->reading = false;
        std::this_thread::sleep_for(20ms);
        addIterations(arrived, listener->text());
        listener = nullptr;
        listener = std::make_unique<Listener>(kPath);
    }
    loading = false;
    host.join();
    CHECK(until(
        [&]
        {
            addIterations(arrived, listener->text());
            return arrived.size() + publisher.dropped() == published;
        }));
    CHECK(publisher.dropped() == 0);
}

void tenPublishersAtOnceLoseNothing()
{
    constexpr std::uint64_t kEach = 2000;
    std::vector<std::unique_ptr<Listener>> exporters;
    std::vector<std::unique_ptr<Publisher>> publishers;
    for (int i = 0; i < 10; ++i)
    {
        auto const path = kPath + std::to_string(i);
        exporters.push_back(std::make_unique<Listener>(path));
        publishers.push_back(std::make_unique<Publisher>(path, "m", std::to_string(i), CapturedLog().patient()));
    }
    std::vector<std::thread> hosts;
    for (auto& publisher : publishers)
    {
        hosts.emplace_back(
            [&publisher]
            {
                for (std::uint64_t i = 0; i < kEach; ++i)
                {
                    publisher->publish(recordOf(i));
                }
            });
    }
    for (auto& host : hosts)
    {
        host.join();
    }
    for (std::size_t i = 0; i < publishers.size(); ++i)
    {
        CHECK(until([&] { return count(exporters[i]->text(), "\"iter\":") + publishers[i]->dropped() == kEach; }));
        CHECK(publishers[i]->dropped() == 0);
    }
}

void withoutAnExporterTheOldestAreDroppedAndItIsLoggedOnce()
{
    CapturedLog const log;
    Publisher publisher(kPath, "m", "1", log.options(64 << 10));
    for (std::uint64_t i = 0; i < 1000; ++i)
    {
        publisher.publish(recordOf(i));
    }
    auto const dropped = publisher.dropped();
    CHECK(dropped > 800 && dropped < 1000 && !publisher.connected());
    CHECK(until([&] { return count(log.all(), "\n") == 1; }));
    CHECK(publisher.failing() && contains(publisher.error(), "cannot publish to " + kPath + ": No such file"));
    std::this_thread::sleep_for(400ms); // enough time for retries
    CHECK(count(log.all(), "\n") == 1
        && contains(log.all(), kPath + ": No such file or directory; check that trtllm-exporter runs"));

    Listener listener(kPath);
    CHECK(publisher.flush(60s));
    CHECK(until([&] { return contains(listener.text(), "\"iter\":999,"); }));
    auto const text = listener.text();
    CHECK(count(text, "\n") == 1000 - dropped + 1 && text.find("{\"hello\"") == 0);
    CHECK(contains(text, "\n{\"timestamp\":\"07-25-2025 16:54:34.140189\",\"iter\":" + std::to_string(dropped) + ","));
    CHECK(until([&] { return count(log.all(), "\n") == 2; }));
    CHECK(contains(log.all(), std::to_string(dropped) + " records were dropped before"));
    CHECK(publisher.connected() && !publisher.failing() && publisher.error().empty());
}

void exporterThatDoesNotReadNeverBlocksTheHost()
{
    CapturedLog const log;
    Listener listener(kPath);
    listener.reading = false;
    Publisher publisher(kPath, "m", "1", log.options(256 << 10));
    std::uint64_t published = 0;
    CHECK(onceInFive(
        [&]
        {
            auto slowest = 0ns;
            for (int i = 0; i < 20000; ++i, ++published)
            {
                slowest = std::max(slowest, took([&] { publisher.publish(recordOf(published)); }));
            }
            return slowest < 1s;
        }));
    CHECK(publisher.dropped() > published - 10000);
    CHECK(until([&] { return contains(log.all(), "fast enough; dropping"); }));
    listener.reading = true;
    CHECK(until([&] { return contains(listener.text(), "\"iter\":" + std::to_string(published - 1) + ","); }));
    CHECK(count(listener.text(), "\n") == published - publisher.dropped() + 1);
    CHECK(until([&] { return contains(log.all(), "records were dropped before"); }));
    CHECK(count(log.all(), "\n") <= 3); // publishing, dropping, publishing again
}

void idleEngineReconnectsAfterAnExporterRestart()
{
    CapturedLog const log;
    auto first = std::make_unique<Listener>(kPath);
    Publisher publisher(kPath, "m", "1", log.options());
    publisher.publish(recordOf(1));
    CHECK(until([&] { return contains(first->text(), "\"iter\":1,"); }));
    first.reset();
    CHECK(until([&] { return !publisher.connected(); }));
    Listener second(kPath);
    CHECK(until([&] { return contains(second.text(), "{\"hello\""); }));
    publisher.publish(recordOf(2));
    CHECK(until([&] { return contains(second.text(), "\"iter\":2,"); }));
    CHECK(!contains(second.text(), "\"iter\":1,"));
}

void invalidPathIsLoggedOnce()
{
    for (auto const& path : {std::string("/proc/no/such.sock"), std::string(200, 'x'), std::string("/dev/null")})
    {
        CapturedLog const log;
        Publisher publisher(path, "m", "1", log.options());
        publisher.publish(recordOf(1));
        CHECK(until([&] { return contains(log.all(), "cannot publish to " + path); }));
        std::this_thread::sleep_for(200ms);
        CHECK(count(log.all(), "\n") == 1);
    }
}

/// A worker rank has no records. Its connection would look like one more engine.
void publisherWithoutRecordsHasNoThreadAndNoConnection()
{
    Listener listener(kPath);
    auto const threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
    {
        auto const before = threads();
        Publisher publisher(kPath, "m", "1", CapturedLog().options());
        CHECK(!publisher.connected() && publisher.error().empty() && threads() == before);
    }
    CHECK(listener.connections == 0);
}

/// The exporter closes a connection whose name is in use.
void refusedPublisherLogsOnceAndKeepsItsRecords(std::chrono::milliseconds patience)
{
    CapturedLog const log;
    Listener listener(kPath);
    listener.patience = patience;
    listener.refusing = true;
    Publisher publisher(kPath, "m", "1", log.options());
    publisher.publish(recordOf(0));
    CHECK(until([&] { return listener.connections >= 4; }));
    CHECK(count(log.all(), "closes the connection; either another process publishes with the same model and version")
        == 1);
    // Only the first connection may have received records. They are lost, because the publisher did not know of the
    // refusal yet.
    CHECK(count(listener.text(), "\"iter\":") <= 1);
    publisher.publish(recordOf(1));
    publisher.publish(recordOf(2));
    listener.refusing = false;
    CHECK(until([&] { return contains(listener.text(), "\"iter\":2,"); }));
    CHECK(count(listener.text(), "\"iter\":1,") == 1 && publisher.dropped() == 0);
    CHECK(until([&] { return contains(log.all(), "publishing to " + kPath); }));
}

void newlineOrOversizedLineDoesNotBreakTheStream()
{
    Listener listener(kPath);
    Publisher publisher(kPath, "m", "1", CapturedLog().options(8192));
    CHECK(!publisher.publishLine("{}\n{}"));
    publisher.publishLine(std::string(10000, ' '));
    publisher.publishLine("{\"iter\":3}");
    CHECK(until([&] { return contains(listener.text(), "\n{\"iter\":3}\n"); }) && publisher.dropped() == 1);
}

[[maybe_unused]] void forkedChildNeedsItsOwnPublisher()
{
    Listener listener(kPath);
    auto publisher = std::make_unique<Publisher>(kPath, "m", "1", CapturedLog().options());
    publisher->publish(recordOf(0));
    CHECK(until([&] { return publisher->connected(); }));
    // Another thread holds the mutex during some of these forks.
    std::atomic<bool> stopped{false};
    std::thread busy(
        [&]
        {
            for (std::uint64_t i = 0; !stopped; ++i)
            {
                publisher->publish(recordOf(i));
            }
        });
    for (int fork = 0; fork < 20; ++fork)
    {
        auto const child = ::fork();
        if (child == 0)
        {
            ::alarm(60);
            auto const silent = !publisher->publish(recordOf(1)) && !publisher->publishLine("{}")
                && !publisher->flush(1ms) && !publisher->connected() && publisher->dropped() == 0;
            publisher.reset();
            std::string const own = kPath + ".child";
            Listener there(own);
            Publisher mine(own);
            mine.publish(recordOf(7));
            auto const received = until([&] { return contains(there.text(), "\"iter\":7,"); });
            std::_Exit(silent && received ? 0 : 1);
        }
        int status = -1;
        CHECK(::waitpid(child, &status, 0) == child && status == 0);
    }
    stopped = true;
    busy.join();
    // A child that keeps running must not keep the connection open.
    auto const child = ::fork();
    if (child == 0)
    {
        ::pause();
    }
    publisher.reset();
    CHECK(until([&] { return listener.ended == 1; }));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

void destructionIsFastWhateverTheExporterDoes()
{
    auto const end = [](int times, std::uint64_t records)
    {
        for (int i = 0; i < times; ++i)
        {
            Publisher publisher(kPath, "m", "1", CapturedLog().options());
            for (std::uint64_t n = 0; n < records; ++n)
            {
                publisher.publish(recordOf(n));
            }
        }
    };
    CHECK(onceInFive([&] { return took([&] { end(20, 1); }) < 5s; }));
    Listener listener(kPath);
    listener.reading = false;
    CHECK(onceInFive([&] { return took([&] { end(3, 1000); }) < 5s; }));
}

} // namespace

int main()
{
    testLines();
    recordsOfManyThreadsArriveOnce();
    drainOfAThousandRecordsLosesNone();
    exporterThatRestartsUnderLoadMissesNoRecord();
    tenPublishersAtOnceLoseNothing();
    withoutAnExporterTheOldestAreDroppedAndItIsLoggedOnce();
    exporterThatDoesNotReadNeverBlocksTheHost();
    idleEngineReconnectsAfterAnExporterRestart();
    invalidPathIsLoggedOnce();
    newlineOrOversizedLineDoesNotBreakTheStream();
    publisherWithoutRecordsHasNoThreadAndNoConnection();
    refusedPublisherLogsOnceAndKeepsItsRecords(std::chrono::milliseconds(0));
    // The exporter waits one second for the name to become free before it refuses the publisher.
    refusedPublisherLogsOnceAndKeepsItsRecords(std::chrono::milliseconds(1000));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // for the reason in churn() of host.cc
    forkedChildNeedsItsOwnPublisher();
#endif
    destructionIsFastWhateverTheExporterDoes();
    testPoller();
}
