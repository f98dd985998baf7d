// A server that reads its own statistics, for example for its logs, and publishes a copy to the exporter. It needs one
// header and links no library.

#include "name.h"
#include "server.h"

#include "trtllm_exporter/publisher.h"

#include <pthread.h>

int main(int count, char** arguments)
{
    auto const settings = example::settingsOf(count, arguments);
    auto const executor = example::open(settings);
    trtllm_exporter::PublisherOptions options;
    options.flushTimeout = std::chrono::seconds(30); // do not lose the last records, even if the exporter is slow
    trtllm_exporter::Publisher publisher(
        example::environment("SOCKET", "/run/trtllm-exporter/ingest.sock"), example::nameOf(settings), options);

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
