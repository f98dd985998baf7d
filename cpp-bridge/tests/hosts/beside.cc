// A host that links another Rust archive and the system's libzstd, in addition to the static libtrtllm_exporter.

#include "check.h"

#include "trtllm_exporter/exporter.h"

#include "tensorrt_llm/executor/executor.h"

#include <dlfcn.h>

namespace tle = tensorrt_llm::executor;

extern "C" int beside_answer(int factor);
extern "C" unsigned ZSTD_versionNumber(void);

int main()
{
    auto const executor
        = std::make_shared<tle::Executor>("sim:?rate=0", tle::ModelType::kDECODER_ONLY, tle::ExecutorConfig());
    trtllm_exporter::Options options;
    options.listen = "127.0.0.1:0";
    auto exporter = trtllm_exporter::Exporter::attach(executor, options);
    CHECK(!exporter.address().empty());
    CHECK(beside_answer(7) == 42);
    // The host uses the system's zstd, not the copy of zstd that the exporter contains.
    Dl_info object{};
    CHECK(::dladdr(reinterpret_cast<void*>(&ZSTD_versionNumber), &object) != 0
        && contains(object.dli_fname, "libzstd.so"));
    CHECK(ZSTD_versionNumber() > 10000);
}
