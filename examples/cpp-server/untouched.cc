// A server without any exporter code, which never reads its Executor's statistics. The preload library adds metrics:
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
