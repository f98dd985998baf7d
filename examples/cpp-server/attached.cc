// A server with the embedded exporter. It serves the page at $LISTEN, publishes to a sidecar at $SOCKET, or does both.

#include "name.h"
#include "server.h"

#include "trtllm_exporter/exporter.h"

int main(int count, char** arguments)
{
    auto const settings = example::settingsOf(count, arguments);
    auto const executor = example::open(settings);

    trtllm_exporter::Options options;
    options.name = example::nameOf(settings);
    options.listen = example::environment("LISTEN", "127.0.0.1:8002");
    options.socket = example::environment("SOCKET", "");
    auto exporter = trtllm_exporter::Exporter::attach(executor, options);

    auto const finished
        = example::serve(*executor, settings, [&](auto const& response) { exporter.observe(response); });
    example::report(*executor, finished);
    // stop() fetches the last records. Then the Executor is destroyed on this thread.
    exporter.stop();
}
