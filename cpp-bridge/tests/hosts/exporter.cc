// Tests exporter.h as a host uses it.

#include "exporting.h"
#include "listener.h"

#include "tensorrt_llm/sim/truth.h"

#include <stdexcept>

#include <sys/wait.h>

void testStopping(); // stopping.cc

namespace
{

void settingsOfTheOptionsAreOnThePage()
{
    auto const executor = engine();
    auto options = CapturedLog().options("127.0.0.1:0");
    options.publisher.config = {{"quantization", "FP8"}, {"tensor_parallel_size", "2"}, {"other", "no label"}};
    auto const text = page(Exporter::attach(executor, options));
    CHECK(contains(text, "\nnv_trt_llm_engine_config_info{dtype=\"unknown\","));
    CHECK(contains(text, ",quantization=\"FP8\",") && contains(text, ",tensor_parallel_size=\"2\","));
    CHECK(!contains(text, "no label"));
}

void pageCountsEveryIterationAndEveryFinishedRequest()
{
    auto const executor = engine();
    auto exporter = Exporter::attach(executor, CapturedLog().options("127.0.0.1:0"));
    for (int request = 0; request < 5; ++request)
    {
        // All requests together fit into the ring of 1000 records, so a slow machine loses none.
        for (auto const& response : work(*executor, 150))
        {
            exporter.observe(response);
        }
    }
    CHECK(until([&] { return contains(page(exporter), series("nv_trt_llm_iterations_total", 750)); }));
    CHECK(until([&] { return contains(page(exporter), series("nv_trt_llm_time_to_first_token_seconds_count", 5)); }));
    // The record after the last iteration reports the last completion.
    CHECK(until([&] { return contains(page(exporter), series("nv_trt_llm_requests_completed_total", 5)); }));
    auto const text = page(exporter);
    auto const truth = tensorrt_llm::sim::truth(*executor);
    CHECK(contains(
        text, "\nnv_trt_llm_requests_finished_total{model=\"tensorrt_llm\",reason=\"length\",version=\"1\"} 5\n"));
    CHECK(contains(text, series("nv_trt_llm_generation_tokens_total", truth.generationTokens)));
    CHECK(contains(text, series("nv_trt_llm_iterations_lost_total", 0)));
    CHECK(contains(text, "source=\"embedded\"") && contains(text, "kv_cache_block_type=\"max\""));
    CHECK(contains(get(exporter.address(), "/readyz"), " 200 "));
    auto const address = exporter.address();
    exporter.stop();
    CHECK(get(address, "/metrics").empty() && exporter.address().empty());
}

void sidecarGetsTheSameRecords()
{
    Listener listener(kPath);
    auto const executor = engine();
    {
        auto options = CapturedLog().options("127.0.0.1:0", kPath);
        options.publisher.flushTimeout = 60s;
        auto exporter = Exporter::attach(executor, options);
        for (auto const& response : work(*executor, 200))
        {
            exporter.observe(response);
        }
        CHECK(until([&] { return contains(page(exporter), series("nv_trt_llm_iterations_total", 200)); }));
        // The engine may write its last record, the flush record, after the response. The destructor fetches it.
        CHECK(until([&] { return tensorrt_llm::sim::truth(*executor).flushes == 1; }));
    }
    CHECK(until([&] { return listener.ended == 1; }));
    CHECK(count(listener.text(), "\"iterLatencyMS\":") == 201 && count(listener.text(), "perfMetrics") == 1);
}

void executorMayBeDestroyedBeforeTheExporter()
{
    CapturedLog const log;
    auto executor = engine();
    auto exporter = Exporter::attach(executor, log.options("127.0.0.1:0"));
    work(*executor, 100);
    CHECK(until([&] { return contains(page(exporter), series("nv_trt_llm_iterations_total", 100)); }));
    executor.reset();
    CHECK(until([&] { return contains(log.all(), "cannot read statistics: the executor has been destroyed"); }));
    std::this_thread::sleep_for(100ms);
    CHECK(count(log.all(), "\n") == 2); // "serving" and this line
    CHECK(contains(page(exporter), series("nv_trt_llm_iterations_total", 100)));
}

void executorMayBeShutDownAndExporterMayBeDestroyedFirst()
{
    CapturedLog const log;
    auto executor = engine();
    {
        auto exporter = Exporter::attach(executor, log.options("127.0.0.1:0"));
        work(*executor, 10);
        auto moved = std::move(exporter);
        exporter = std::move(moved);
        executor->shutdown();
        // If the shutdown happens between canEnqueueRequests() and the drain, the log has the Executor's own message.
        CHECK(until([&] { return contains(log.all(), "shut down") || contains(log.all(), "Shutdown called"); }));
    }
    CHECK(!executor->canEnqueueRequests());
    executor = engine();
    auto exporter = Exporter::attach(executor, log.options("127.0.0.1:0"));
    exporter = Exporter();
    CHECK(work(*executor, 10).size() == 1 && executor->getLatestIterationStats().size() >= 10);
}

/// attach() accepts any class with the methods of an Executor that it calls.
struct Failing
{
    std::atomic<int> calls{0};
    std::atomic<bool> fails{true};

    bool canEnqueueRequests() const
    {
        return true;
    }

    std::deque<tle::IterationStats> getLatestIterationStats()
    {
        ++calls;
        if (fails)
        {
            throw std::runtime_error("it is broken\n1 0x7f stack\n");
        }
        return {};
    }

    std::deque<tle::RequestStatsPerIteration> getLatestRequestStats()
    {
        throw 7;
    }
};

void throwingExecutorIsLoggedOnceAndCounted()
{
    CapturedLog const log;
    auto const executor = std::make_shared<Failing>();
    auto options = log.options("127.0.0.1:0");
    options.drainRequests = false;
    auto exporter = Exporter::attach(executor, options);
    CHECK(until([&] { return executor->calls > 5; }));
    CHECK(count(log.all(), "cannot read statistics: it is broken\n") == 1 && count(log.all(), "\n") == 2);
    CHECK(!contains(page(exporter),
        "poll_errors_total{kind=\"engine\",model=\"tensorrt_llm\",source=\"embedded\",version=\"1\"} 0\n"));
    executor->fails = false;
    CHECK(until([&] { return contains(log.all(), "the executor answers again"); }));
    exporter.stop();
    // An exception that is not a std::exception must not end the host either.
    auto other = Exporter::attach(executor, log.options("127.0.0.1:0"));
    CHECK(until([&, seen = executor->calls.load()] { return executor->calls > seen + 5; }));
}

void portInUseIsLoggedAndPublishingStillWorks()
{
    CapturedLog const log;
    Listener listener(kPath);
    auto const taken = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(own);
    CHECK(::bind(taken, reinterpret_cast<sockaddr*>(&own), size) == 0 && ::listen(taken, 1) == 0);
    CHECK(::getsockname(taken, reinterpret_cast<sockaddr*>(&own), &size) == 0);
    auto const address = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
    auto const executor = engine();
    auto exporter = Exporter::attach(executor, log.options(address, kPath));
    CHECK(contains(log.all(), "cannot listen on " + address) && exporter.address().empty());
    CHECK(contains(exporter.status().pageError, "cannot listen on " + address));
    work(*executor, 20);
    CHECK(until([&] { return count(listener.text(), "\"iterLatencyMS\":") == 21; }));
    CHECK(exporter.status().connected && exporter.status().socketError.empty());
    exporter.stop();
    ::close(taken);
    for (auto const* listen : {"nonsense", "127.0.0.1:99999", ":", "[::1"})
    {
        auto wrong = Exporter::attach(executor, log.options(listen));
        CHECK(wrong.address().empty() && !wrong.status().pageError.empty());
    }
}

void statusSaysWhyTheSidecarIsNotReached()
{
    auto const executor = engine();
    auto exporter = Exporter::attach(executor, CapturedLog().options("", "/nonexistent/x.sock"));
    CHECK(exporter.status().socketError.empty()); // before the first record
    work(*executor, 5);
    CHECK(until([&] { return contains(exporter.status().socketError, "cannot publish to /nonexistent/x.sock: "); }));
    CHECK(!exporter.status().connected && exporter.status().address.empty() && exporter.status().pageError.empty());
}

void executorsWithOneAddressShareAPage()
{
    CapturedLog const log;
    auto const llama = engine();
    auto const qwen = engine();
    auto options = log.options("127.0.0.1:0");
    options.name = trtllm_exporter::EngineName("llama");
    auto first = Exporter::attach(llama, options);
    options.listen = first.address();
    options.name = trtllm_exporter::EngineName("qwen");
    auto second = Exporter::attach(qwen, options);
    CHECK(!first.address().empty() && second.address() == first.address());
    work(*llama, 10);
    work(*qwen, 20);
    auto const iterations = [](char const* model, int number)
    {
        return "\nnv_trt_llm_iterations_total{model=\"" + std::string(model) + "\",version=\"1\"} "
            + std::to_string(number) + "\n";
    };
    CHECK(until([&] { return contains(page(first), iterations("llama", 10)); }));
    CHECK(until([&] { return contains(page(first), iterations("qwen", 20)); }));
    options.name = trtllm_exporter::EngineName("qwen");
    auto const third = engine();
    auto refused = Exporter::attach(third, options);
    CHECK(refused.address().empty());
    CHECK(contains(refused.status().pageError, "model \"qwen\" version \"1\" is on the page"));
    first.stop();
    CHECK(until([&] { return contains(page(second), iterations("qwen", 20)) && !contains(page(second), "llama"); }));
}

void secondAttachToAnExecutorWarns()
{
    CapturedLog const log;
    auto const executor = engine();
    auto first = Exporter::attach(executor, log.options("127.0.0.1:0"));
    CHECK(!contains(log.all(), "another Exporter"));
    {
        auto second = Exporter::attach(executor, log.options("127.0.0.1:0"));
        CHECK(count(log.all(), "another Exporter reads this executor already") == 1);
    }
    first.stop();
    auto third = Exporter::attach(executor, log.options("127.0.0.1:0"));
    CHECK(count(log.all(), "another Exporter") == 1);
}

void executorInAUniquePointerIsServed()
{
    auto const executor = std::make_unique<tle::Executor>(
        "sim:?rate=0&speed=max", tle::ModelType::kDECODER_ONLY, tle::ExecutorConfig());
    auto exporter = Exporter::attach(*executor, CapturedLog().options("127.0.0.1:0"));
    work(*executor, 100);
    CHECK(until([&] { return contains(page(exporter), series("nv_trt_llm_iterations_total", 100)); }));
}

template <class Executor, class = void>
struct CanAttach : std::false_type
{
};
template <class Executor>
struct CanAttach<Executor, std::void_t<decltype(Exporter::attach(std::declval<Executor>()))>> : std::true_type
{
};
static_assert(CanAttach<tle::Executor&>::value && CanAttach<std::shared_ptr<tle::Executor>>::value);
static_assert(!CanAttach<tle::Executor>::value, "a temporary Executor would be destroyed before the Exporter");
static_assert(!CanAttach<std::unique_ptr<tle::Executor>&>::value);

[[maybe_unused]] void forkedChildDoesNothingAndClosesThePort()
{
    auto const executor = engine();
    auto exporter = std::make_unique<Exporter>(Exporter::attach(executor, CapturedLog().options("127.0.0.1:0")));
    auto const address = exporter->address();
    for (int fork = 0; fork < 10; ++fork)
    {
        work(*executor, 50);
        auto const child = ::fork();
        if (child == 0)
        {
            ::alarm(60);
            exporter->observe(tle::Response(1, std::string("failed")));
            auto const silent = exporter->address().empty() && exporter->dropped() == 0;
            exporter->stop();
            exporter.reset();
            auto const own = engine();
            auto mine = Exporter::attach(own, CapturedLog().options("127.0.0.1:0"));
            work(*own, 30);
            auto const served = until([&] { return contains(page(mine), series("nv_trt_llm_iterations_total", 30)); });
            std::_Exit(silent && served ? 0 : 1);
        }
        int status = -1;
        CHECK(::waitpid(child, &status, 0) == child && status == 0);
    }
    int running[2];
    CHECK(::pipe(running) == 0);
    auto const child = ::fork();
    if (child == 0)
    {
        CHECK(::write(running[1], "x", 1) == 1);
        ::pause();
    }
    // The child closes the port when it starts to run. On a busy machine, fork() may return in the parent before this.
    char begun = 0;
    CHECK(::read(running[0], &begun, 1) == 1);
    CHECK(contains(get(address, "/metrics"), " 200 "));
    exporter.reset();
    // The child still runs, but the port must be free.
    auto const again = Exporter::attach(executor, CapturedLog().options(address));
    CHECK(again.address() == address);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

/// Serves the page and publishes the same records until it is killed: every kind of record, with all members.
[[noreturn]] void serveBoth(std::string const& socket)
{
    tle::ExecutorConfig config;
    config.setRequestStatsMaxIterations(1000);
    auto const executor = std::make_shared<tle::Executor>(
        "sim:?rate=0&speed=max&spec_draft_len=3&disagg=1", tle::ModelType::kDECODER_ONLY, config);
    auto exporter = Exporter::attach(executor, CapturedLog().options("127.0.0.1:0", socket));
    for (int request = 0; request < 5; ++request)
    {
        for (auto const& response : work(*executor, 150))
        {
            exporter.observe(response);
        }
    }
    auto const iterations = tensorrt_llm::sim::truth(*executor).iterations;
    CHECK(until([&] { return contains(page(exporter), series("nv_trt_llm_iterations_total", iterations)); }));
    std::printf("%s %llu\n", exporter.address().c_str(), static_cast<unsigned long long>(iterations));
    std::fflush(stdout);
    for (;;)
    {
        ::pause();
    }
}

} // namespace

int main(int count, char** arguments)
{
    if (count > 1)
    {
        serveBoth(arguments[1]);
    }
    settingsOfTheOptionsAreOnThePage();
    pageCountsEveryIterationAndEveryFinishedRequest();
    sidecarGetsTheSameRecords();
    executorMayBeDestroyedBeforeTheExporter();
    executorMayBeShutDownAndExporterMayBeDestroyedFirst();
    throwingExecutorIsLoggedOnceAndCounted();
    portInUseIsLoggedAndPublishingStillWorks();
    statusSaysWhyTheSidecarIsNotReached();
    executorsWithOneAddressShareAPage();
    secondAttachToAnExecutorWarns();
    testStopping();
    executorInAUniquePointerIsServed();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    forkedChildDoesNothingAndClosesThePort();
#endif
}
