// A server that knows nothing of the exporter and never reads its Executor's statistics. Preloaded, it has metrics:
//
//     LD_PRELOAD=libtrtllm_exporter_preload.so TRTLLM_EXPORTER_SOCKET=/run/trtllm-exporter/ingest.sock ./untouched

#include "server.h"

int main(int count, char** arguments)
{
    auto const settings = example::settingsOf(count, arguments);
    auto const executor = example::open(settings);
    auto const finished = example::serve(*executor, settings, [](auto const&) {});
    example::report(*executor, finished);
}
