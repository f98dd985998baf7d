// Tests publisher.h with a test listener instead of the exporter.

#include "publishing.h"

#include <csignal>
#include <deque>
#include <filesystem>
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

/// Publishes records until one of them arrives.
void publishUntilOneArrives(Publisher& publisher, Listener& listener, std::uint64_t& iter)
{
    auto const before = count(listener.text(), "\"iter\":");
    CHECK(until(
        [&]
        {
            publisher.publish(recordOf(iter++));
            return count(listener.text(), "\"iter\":") > before;
        }));
}

void drainOfAThousandRecordsLosesNone()
{
    Listener listener(kPath);
    Publisher publisher(kPath, "m", "1", CapturedLog().options(4 << 20));
    std::deque<tle::IterationStats> records;
    for (std::uint64_t i = 0; i < 1000; ++i)
    {
        records.push_back(recordOf(i));
    }
    CHECK(publisher.publishAll(records) && publisher.flush(60s) && publisher.dropped() == 0);
    CHECK(until([&] { return count(listener.text(), "\"iter\":") == 1000; }));
}

/// Each connection starts with the hello line, and has only whole lines, in their order.
void checkLines(std::string const& text)
{
    std::size_t end = text.find('\n');
    CHECK(text.empty() || (text.find("{\"hello\"") == 0 && end != std::string::npos));
    std::uint64_t last = 0;
    for (std::size_t at = end + 1; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    {
        auto const line = text.substr(at, end - at);
        CHECK(line.find("{\"timestamp\":") == 0 && line.rfind("}}") == line.size() - 2);
        auto const iter = std::stoull(line.substr(line.find("\"iter\":") + 7));
        CHECK(iter > last);
        last = iter;
    }
}

void exporterThatRestartsUnderLoadGetsWholeLinesInOrder()
{
    auto listener = std::make_unique<Listener>(kPath);
    Publisher publisher(kPath, "m", "1", CapturedLog().options(64 << 10));
    std::atomic<bool> loading{true};
    std::thread host(
        [&]
        {
            for (std::uint64_t iter = 1; loading; ++iter)
            {
                publisher.publish(recordOf(iter));
                std::this_thread::sleep_for(iter % 50 == 0 ? 1ms : 0ms);
            }
        });
    for (int restart = 0; restart < 4; ++restart)
    {
        CHECK(until([&] { return count(listener->text(), "\n") > 100; }));
        // Now the socket becomes full, and a line is sent only in part.
        auto const dropped = publisher.dropped();
        listener->reading = restart % 2 == 0;
        CHECK(until([&] { return listener->reading || publisher.dropped() > dropped; }));
        listener->reading = true;
        std::this_thread::sleep_for(5ms);
        auto const text = listener->text();
        listener = nullptr;
        checkLines(text);
        listener = std::make_unique<Listener>(kPath);
    }
    loading = false;
    host.join();
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
                CHECK(publisher->flush(60s));
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

void withoutAnExporterRecordsAreDroppedAndItIsLoggedOnce()
{
    CapturedLog const log;
    Publisher publisher(kPath, "m", "1", log.options());
    std::uint64_t iter = 0;
    for (; iter < 1000; ++iter)
    {
        publisher.publish(recordOf(iter));
    }
    CHECK(publisher.dropped() == 1000 && !publisher.connected() && !publisher.flush(60s));
    CHECK(contains(publisher.error(), "cannot publish to " + kPath + ": No such file"));
    std::this_thread::sleep_for(200ms); // the next record tries again to connect
    publisher.publish(recordOf(iter++));
    CHECK(count(log.all(), "\n") == 1
        && contains(log.all(), kPath + ": No such file or directory; check that trtllm-exporter runs"));

    Listener listener(kPath);
    publishUntilOneArrives(publisher, listener, iter);
    CHECK(count(log.all(), "\n") == 2);
    CHECK(contains(log.all(), std::to_string(publisher.dropped()) + " records were dropped before"));
    CHECK(publisher.connected() && publisher.error().empty());
    CHECK(until([&] { return count(listener.text(), "\n") == iter - publisher.dropped() + 1; }));
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
    CHECK(publisher.dropped() > published - 10000 && contains(log.all(), "fast enough; dropping"));
    listener.reading = true;
    CHECK(publisher.flush(60s));
    publisher.publish(recordOf(published++)); // may wait, because the socket may still be full
    CHECK(publisher.flush(60s));
    CHECK(until([&] { return contains(listener.text(), "\"iter\":" + std::to_string(published - 1) + ","); }));
    CHECK(count(listener.text(), "\n") == published - publisher.dropped() + 1);
    CHECK(contains(log.all(), "records were dropped before"));
    CHECK(count(log.all(), "\n") == 3); // publishing, dropping, publishing again
}

void lineLargerThanTheSocketArrivesWhole()
{
    Listener listener(kPath);
    Publisher publisher(kPath, "m", "1", CapturedLog().options(0));
    auto const large = "{\"iter\":1,\"pad\":\"" + std::string(8 << 20, 'x') + "\"}";
    CHECK(publisher.publishLine(large) && publisher.flush(60s));
    CHECK(publisher.publishLine("{\"iter\":2}") && publisher.flush(60s)); // the socket may still be full
    CHECK(until([&] { return contains(listener.text(), "\n{\"iter\":2}\n"); }));
    CHECK(contains(listener.text(), large + "\n") && publisher.dropped() == 0);
}

void idleEngineReconnectsAfterAnExporterRestart()
{
    CapturedLog const log;
    auto first = std::make_unique<Listener>(kPath);
    Publisher publisher(kPath, "m", "1", log.options());
    publisher.publish(recordOf(1));
    CHECK(until([&] { return contains(first->text(), "\"iter\":1,"); }));
    first.reset();
    std::deque<tle::IterationStats> const none;
    CHECK(publisher.publishAll(none) && !publisher.connected());
    Listener second(kPath);
    CHECK(until([&] { return publisher.publishAll(none) && contains(second.text(), "{\"hello\""); }));
    CHECK(until([&] { return publisher.publishAll(none) && publisher.connected(); }));
    publisher.publish(recordOf(2));
    CHECK(until([&] { return publisher.flush(0ms) && contains(second.text(), "\"iter\":2,"); }));
    CHECK(!contains(second.text(), "\"iter\":1,"));
}

void invalidPathIsLoggedOnce()
{
    for (auto const& path : {std::string("/proc/no/such.sock"), std::string(200, 'x'), std::string("/dev/null")})
    {
        CapturedLog const log;
        Publisher publisher(path, "m", "1", log.options());
        publisher.publish(recordOf(1));
        CHECK(contains(log.all(), "cannot publish to " + path));
        std::this_thread::sleep_for(200ms); // the next record tries again
        publisher.publish(recordOf(2));
        CHECK(count(log.all(), "\n") == 1);
    }
}

/// A worker rank publishes nothing. Its connection would look like one more engine.
void publisherHasNoThreadAndConnectsAtTheFirstPoll()
{
    Listener listener(kPath);
    auto const threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
    auto const before = threads();
    Publisher publisher(kPath, "m", "1", CapturedLog().options());
    CHECK(publisher.flush(60s) && !publisher.connected() && publisher.error().empty() && listener.connections == 0);
    CHECK(publisher.publishAll(std::deque<tle::IterationStats>()) && publisher.connected() && threads() == before);
}

/// The exporter closes a connection whose name is in use.
void refusedPublisherLogsOnceAndCountsItsRecords(std::chrono::milliseconds patience)
{
    CapturedLog const log;
    Listener listener(kPath);
    listener.patience = patience;
    listener.refusing = true;
    Publisher publisher(kPath, "m", "1", log.options());
    std::uint64_t iter = 0;
    CHECK(until(
        [&]
        {
            publisher.publish(recordOf(iter++));
            return listener.connections >= 3;
        }));
    CHECK(count(log.all(), "closes the connection; its log says why: name in use, --ingest.allow-uid,") == 1);
    CHECK(contains(publisher.error(), "closes the connection") && !publisher.connected());
    // A refused publisher sends the first byte of its records after the hello, which takes the name from one that hangs.
    CHECK(until(
        [&]
        {
            publisher.publish(recordOf(iter++));
            return contains(listener.text(), "}\n{{\"hello\"");
        }));
    // Only the first connection received records: later ones wait for the exporter's answer.
    auto const lost = iter - publisher.dropped();
    CHECK(count(listener.text(), "\"iter\":") <= lost);
    listener.refusing = false;
    publishUntilOneArrives(publisher, listener, iter);
    CHECK(until([&] { return publisher.flush(60s) && publisher.connected(); }));
    CHECK(contains(log.all(), "publishing to " + kPath) && publisher.error().empty());
}

void newlineDoesNotBreakTheStream()
{
    Listener listener(kPath);
    Publisher publisher(kPath, "m", "1", CapturedLog().options());
    CHECK(!publisher.publishLine("{}\n{}") && publisher.publishLine("{\"iter\":3}"));
    CHECK(until([&] { return contains(listener.text(), "}\n{\"iter\":3}\n"); }));
}

/// The log runs on the server's threads.
void fullOrBrokenStandardErrorNeitherBlocksNorEndsTheHost()
{
    int ends[2];
    CHECK(::pipe(ends) == 0);
    auto const before = ::dup(STDERR_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    trtllm_exporter::logToStderr("first");
    char text[64];
    auto const got = ::read(ends[0], text, sizeof(text));
    for (int line = 0; line < 10000; ++line)
    {
        trtllm_exporter::logToStderr("the pipe has room for fewer lines");
    }
    ::close(ends[0]);
    trtllm_exporter::logToStderr("SIGPIPE would end this program");
    ::dup2(before, STDERR_FILENO);
    ::close(before);
    ::close(ends[1]);
    CHECK(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0))) == "trtllm_exporter: first\n");
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
    exporterThatRestartsUnderLoadGetsWholeLinesInOrder();
    tenPublishersAtOnceLoseNothing();
    withoutAnExporterRecordsAreDroppedAndItIsLoggedOnce();
    exporterThatDoesNotReadNeverBlocksTheHost();
    lineLargerThanTheSocketArrivesWhole();
    idleEngineReconnectsAfterAnExporterRestart();
    invalidPathIsLoggedOnce();
    newlineDoesNotBreakTheStream();
    fullOrBrokenStandardErrorNeitherBlocksNorEndsTheHost();
    publisherHasNoThreadAndConnectsAtTheFirstPoll();
    refusedPublisherLogsOnceAndCountsItsRecords(std::chrono::milliseconds(0));
    // The exporter waits one second for the name to become free before it refuses the publisher.
    refusedPublisherLogsOnceAndCountsItsRecords(std::chrono::milliseconds(1000));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // for the reason in churn() of host.cc
    forkedChildNeedsItsOwnPublisher();
#endif
    destructionIsFastWhateverTheExporterDoes();
    testPoller();
}
