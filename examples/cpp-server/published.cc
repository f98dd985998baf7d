// A server that publishes its statistics to the exporter. It needs one header and links no library.

#include "server.h"

#include "trtllm_exporter/publisher.h"

/// The labels of this server's engine: $MODEL, or the name of the engine's folder.
trtllm_exporter::EngineName nameOf(std::string const& engine)
{
    auto const model = example::environment("MODEL", "");
    return model.empty() ? trtllm_exporter::EngineName::ofEngine(engine) : trtllm_exporter::EngineName(model);
}

int main(int count, char** arguments)
{
    auto const settings = example::settingsOf(count, arguments);
    auto const executor = example::open(settings);
    trtllm_exporter::PublisherOptions options;
    options.flushTimeout = std::chrono::seconds(30); // do not lose the last records, even if the exporter is slow
    trtllm_exporter::Publisher publisher(
        example::environment("SOCKET", "/run/trtllm-exporter/ingest.sock"), nameOf(settings.engine), options);
    trtllm_exporter::Poller poller(publisher, *executor);

    auto const finished
        = example::serve(*executor, settings, [&](auto const& response) { publisher.publish(response); });
    example::report(*executor, finished);
    poller.stop();
}
