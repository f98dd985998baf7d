// A server that fetches its own statistics, as many do for their logs, and gives the exporter a copy. One header, no
// library to link.

#include "server.h"

#include "trtllm_exporter/publisher.h"

#include <pthread.h>

int main(int count, char** arguments)
{
    auto const settings = example::settingsOf(count, arguments);
    auto const executor = example::open(settings);
    trtllm_exporter::PublisherOptions options;
    options.flushTimeout = std::chrono::seconds(30); // the last records are worth a late end, if an exporter is there
    trtllm_exporter::Publisher publisher(example::environment("SOCKET", "/run/trtllm-exporter/ingest.sock"),
        example::environment("MODEL", "tensorrt_llm"), "1", options);

    std::atomic<bool> stopped{false};
    std::thread stats(
        [&]
        {
            ::pthread_setname_np(::pthread_self(), "stats");
            for (bool last = false; !last;)
            {
                last = stopped;
                for (auto const& record : executor->getLatestIterationStats())
                {
                    publisher.publish(record);
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(last ? 0 : 100));
            }
        });

    auto const finished
        = example::serve(*executor, settings, [&](auto const& response) { publisher.publish(response); });
    example::report(*executor, finished);
    stopped = true;
    stats.join();
}
