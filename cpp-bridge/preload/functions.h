#pragma once

// The mangled names of TensorRT-LLM's Executor API, in the C++ ABI that this file is compiled for
// (_GLIBCXX_USE_CXX11_ABI). A library exports the names of one ABI only, so they also identify the ABI of a library.

#include <cstddef>

#define TRTLLM_EXECUTOR(name) "_ZN12tensorrt_llm8executor8Executor" name

#define TRTLLM_NEW_PATH "RKNSt10filesystem7__cxx114pathE"
#define TRTLLM_OLD_PATH "RKNSt10filesystem4pathE"
#define TRTLLM_TYPE_CONFIG "NS0_9ModelTypeERKNS0_14ExecutorConfigE"
#define TRTLLM_VECTOR "RKSt6vectorIhSaIhEE"
#define TRTLLM_VIEW "RKSt17basic_string_viewIhSt11char_traitsIhEE"
#if _GLIBCXX_USE_CXX11_ABI
#define TRTLLM_PATH TRTLLM_NEW_PATH
#define TRTLLM_PATHS TRTLLM_PATH "S6_"
#define TRTLLM_VECTOR_STRING TRTLLM_VECTOR "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define TRTLLM_VECTORS_STRINGS TRTLLM_VECTOR_STRING "S6_SE_"
#define TRTLLM_VIEW_STRING TRTLLM_VIEW "RKNSt7__cxx1112basic_stringIcS3_IcESaIcEEE"
#define TRTLLM_VIEWS_STRINGS TRTLLM_VIEW_STRING "S7_SE_"
#define TRTLLM_WEIGHTS "RKSt8optionalISt3mapISC_NS0_6TensorESt4lessISC_ESaISt4pairISD_SL_EEEE"
#else
#define TRTLLM_PATH TRTLLM_OLD_PATH
#define TRTLLM_PATHS TRTLLM_PATH "S5_"
#define TRTLLM_VECTOR_STRING TRTLLM_VECTOR "RKSs"
#define TRTLLM_VECTORS_STRINGS TRTLLM_VECTOR_STRING "S6_S8_"
#define TRTLLM_VIEW_STRING TRTLLM_VIEW "RKSs"
#define TRTLLM_VIEWS_STRINGS TRTLLM_VIEW_STRING "S7_S9_"
#define TRTLLM_WEIGHTS "RKSt8optionalISt3mapISsNS0_6TensorESt4lessISsESaISt4pairIS8_SG_EEEE"
#endif

// The names of the hooks that are not constructors.
#define TRTLLM_NAME_D1 TRTLLM_EXECUTOR("D1Ev")
#define TRTLLM_NAME_D2 TRTLLM_EXECUTOR("D2Ev")
#define TRTLLM_NAME_Assign TRTLLM_EXECUTOR("aSEOS1_")
#define TRTLLM_NAME_Shutdown TRTLLM_EXECUTOR("8shutdownEv")
#define TRTLLM_NAME_Enqueue TRTLLM_EXECUTOR("14enqueueRequestERKNS0_7RequestE")
#define TRTLLM_NAME_EnqueueMany TRTLLM_EXECUTOR("15enqueueRequestsERKSt6vectorINS0_7RequestESaIS3_EE")
#define TRTLLM_NAME_Iterations TRTLLM_EXECUTOR("23getLatestIterationStatsEv")
#define TRTLLM_NAME_Requests TRTLLM_EXECUTOR("21getLatestRequestStatsEv")

// clang-format would indent these tables like expressions.
// clang-format off
/// X(name, mangled, parameters, arguments, folder): the constructors of all releases. One of the parameters is `config`.
/// `folder` is the parameter with the path of the engine's folder; for an encoder-decoder model, it is the decoder's
/// folder. Engines in memory are vectors up to release 0.13, and views (with optional managed weights) since 0.14.
#define TRTLLM_CONSTRUCTORS(X)                                                                                         \
    X(Path, "E" TRTLLM_PATH TRTLLM_TYPE_CONFIG,                                                                        \
        (void* self, Word path, Word type, Word config), (self, path, type, config), path)                             \
    X(Paths, "E" TRTLLM_PATHS TRTLLM_TYPE_CONFIG,                                                                      \
        (void* self, Word encoder, Word decoder, Word type, Word config), (self, encoder, decoder, type, config), decoder)\
    X(Model, "ESt10shared_ptrINS0_5ModelEERKNS0_14ExecutorConfigE",                                                    \
        (void* self, Word model, Word config), (self, model, config), nullptr)                                         \
    X(Models, "ESt10shared_ptrINS0_5ModelEES4_RKNS0_14ExecutorConfigE",                                                \
        (void* self, Word encoder, Word decoder, Word config), (self, encoder, decoder, config), nullptr)              \
    X(Vector, "E" TRTLLM_VECTOR_STRING TRTLLM_TYPE_CONFIG,                                                             \
        (void* self, Word engine, Word json, Word type, Word config), (self, engine, json, type, config), nullptr)     \
    X(Vectors, "E" TRTLLM_VECTORS_STRINGS TRTLLM_TYPE_CONFIG,                                                          \
        (void* self, Word encoder, Word encoderJson, Word decoder, Word decoderJson, Word type, Word config),          \
        (self, encoder, encoderJson, decoder, decoderJson, type, config), nullptr)                                     \
    X(View, "E" TRTLLM_VIEW_STRING TRTLLM_TYPE_CONFIG,                                                                 \
        (void* self, Word engine, Word json, Word type, Word config), (self, engine, json, type, config), nullptr)     \
    X(Weights, "E" TRTLLM_VIEW_STRING TRTLLM_TYPE_CONFIG TRTLLM_WEIGHTS,                                               \
        (void* self, Word engine, Word json, Word type, Word config, Word weights),                                    \
        (self, engine, json, type, config, weights), nullptr)                                                          \
    X(Views, "E" TRTLLM_VIEWS_STRINGS TRTLLM_TYPE_CONFIG,                                                              \
        (void* self, Word encoder, Word encoderJson, Word decoder, Word decoderJson, Word type, Word config),          \
        (self, encoder, encoderJson, decoder, decoderJson, type, config), nullptr)

/// X(name, mangled): all other functions. Their names are the same in both ABIs and in all releases from 0.9 to 1.2.
#define TRTLLM_FUNCTIONS(X)                                                                                            \
    X(NewAbi, TRTLLM_EXECUTOR("C1E" TRTLLM_NEW_PATH TRTLLM_TYPE_CONFIG))                                               \
    X(OldAbi, TRTLLM_EXECUTOR("C1E" TRTLLM_OLD_PATH TRTLLM_TYPE_CONFIG))                                               \
    X(Version, "_ZN12tensorrt_llm8executor7versionEv")                                                                 \
    X(IterRing, "_ZNK12tensorrt_llm8executor14ExecutorConfig25getIterStatsMaxIterationsEv")                            \
    X(RequestRing, "_ZNK12tensorrt_llm8executor14ExecutorConfig28getRequestStatsMaxIterationsEv")                      \
    X(CanEnqueue, "_ZNK12tensorrt_llm8executor8Executor18canEnqueueRequestsEv")                                        \
    X(D1, TRTLLM_NAME_D1)                                                                                              \
    X(D2, TRTLLM_NAME_D2)                                                                                              \
    X(Assign, TRTLLM_NAME_Assign)                                                                                      \
    X(Shutdown, TRTLLM_NAME_Shutdown)                                                                                  \
    X(Enqueue, TRTLLM_NAME_Enqueue)                                                                                    \
    X(EnqueueMany, TRTLLM_NAME_EnqueueMany)                                                                            \
    X(Iterations, TRTLLM_NAME_Iterations)                                                                              \
    X(Requests, TRTLLM_NAME_Requests)
// clang-format on

namespace trtllm_preload
{

/// Stands for any argument that the ABI passes in one general-purpose register or one stack slot.
using Word = void*;

#define TRTLLM_FUNCTION(name, mangled) k##name,
#define TRTLLM_FUNCTION_PAIR(name, mangled, parameters, arguments, folder) k##name##C1, k##name##C2,
enum class Function : std::size_t
{
    TRTLLM_FUNCTIONS(TRTLLM_FUNCTION) TRTLLM_CONSTRUCTORS(TRTLLM_FUNCTION_PAIR) kCount
};
#undef TRTLLM_FUNCTION
#undef TRTLLM_FUNCTION_PAIR

#define TRTLLM_FUNCTION(name, mangled) mangled,
#define TRTLLM_FUNCTION_PAIR(name, mangled, parameters, arguments, folder)                                             \
    TRTLLM_EXECUTOR("C1") mangled, TRTLLM_EXECUTOR("C2") mangled,
inline constexpr char const* kMangled[] = {TRTLLM_FUNCTIONS(TRTLLM_FUNCTION) TRTLLM_CONSTRUCTORS(TRTLLM_FUNCTION_PAIR)};
#undef TRTLLM_FUNCTION
#undef TRTLLM_FUNCTION_PAIR

inline constexpr std::size_t kFunctions = static_cast<std::size_t>(Function::kCount);

} // namespace trtllm_preload
