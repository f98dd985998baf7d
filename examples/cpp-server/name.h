#pragma once

// The labels of this server's engine: $MODEL, or the name of the engine's folder.

#include "server.h"

#include "trtllm_exporter/publisher.h"

namespace example
{

inline trtllm_exporter::EngineName nameOf(Settings const& settings)
{
    auto const model = environment("MODEL", "");
    return model.empty() ? trtllm_exporter::EngineName::ofEngine(settings.engine) : trtllm_exporter::EngineName(model);
}

} // namespace example
