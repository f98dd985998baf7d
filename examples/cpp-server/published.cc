// A server that publishes its statistics to the exporter. It needs one header and links no library.

#include "name.h"
#include "server.h"

#include "trtllm_exporter/publisher.h"

int main(int count, char** arguments)
{
    auto const settings = example::settingsOf(count, arguments);
    auto const executor = example::open(settings);
    trtllm_exporter::PublisherOptions options;
    options.flushTimeout = std::chrono::seconds(30); // do not lose the last records, even if the exporter is slow
    trtllm_exporter::Publisher publisher(
        example::environment("SOCKET", "/run/trtllm-exporter/ingest.sock"), example::nameOf(settings), options);
    trtllm_exporter::Poller poller(publisher, *executor);

    auto const finished
        = example::serve(*executor, settings, [&](auto const& response) { publisher.publish(response); });
    example::report(*executor, finished);
    poller.stop();
}
