// Prints what this library is and its environment variables, if TRTLLM_EXPORTER_HELP is set:
//     TRTLLM_EXPORTER_HELP=1 LD_PRELOAD=libtrtllm_exporter_preload.so /bin/true

#include "sdk.h"

#include <cstdlib>
#include <string>

#include <unistd.h>

namespace
{

constexpr char const* kVariables = R"(
Publishes the statistics of every TensorRT-LLM Executor in this process to trtllm-exporter.
The server gets every record that it asks for. If the library does not fit the server's TensorRT-LLM, it logs one line
and changes nothing.

  TRTLLM_EXPORTER_SOCKET         ingest socket of the exporter; a list with commas gives each Executor of the process its
                                 own; empty disables the preload (default /run/trtllm-exporter/ingest.sock)
  TRTLLM_EXPORTER_MODEL          label "model" of the engine, a list with commas for several Executors (default: the
                                 name of the engine's folder, with the lowest free version)
  TRTLLM_EXPORTER_MODEL_VERSION  label "version" for TRTLLM_EXPORTER_MODEL, also a list (default 1)
  TRTLLM_EXPORTER_REQUEST_STATS  0 publishes no request statistics (default 1)
  TRTLLM_EXPORTER_EXECUTOR_WAIT  seconds until a process that loads TensorRT-LLM and uses no Executor logs a line;
                                 0 disables the line (default 60)
  TRTLLM_EXPORTER_HELP           1 prints this text when the library is loaded
)";

__attribute__((constructor)) void help()
{
    auto const* const wanted = std::getenv("TRTLLM_EXPORTER_HELP");
    if (wanted == nullptr || std::string(wanted) != "1")
    {
        return;
    }
    auto const text = "libtrtllm_exporter_preload.so for " + trtllm_preload::builtFor() + "\n" + kVariables;
    static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
}

} // namespace
