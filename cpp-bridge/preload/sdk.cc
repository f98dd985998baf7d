#include "sdk.h"

#include "trtllm_exporter/publisher.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include <dlfcn.h>

// The version of the headers. build.sh passes it for source trees that have no version.h.
#if !defined(TRTLLM_PRELOAD_VERSION)
#if __has_include("tensorrt_llm/executor/version.h")
#include "tensorrt_llm/executor/version.h"
#define TRTLLM_PRELOAD_VERSION tensorrt_llm::executor::kTensorRtLlmVersion
#else
#define TRTLLM_PRELOAD_VERSION ""
#endif
#endif

/// The fallback for releases without version(). If both functions are visible, overload resolution prefers
/// TensorRT-LLM's, because it is not a template.
namespace trtllm_preload_fallback
{

template <int = 0>
void version();

} // namespace trtllm_preload_fallback

namespace
{

/// True if the headers declare version(). Releases before 0.12 do not.
bool headersHaveVersion()
{
    using namespace trtllm_preload_fallback;
    using namespace tensorrt_llm::executor;
    return !std::is_void_v<decltype(version())>;
}

} // namespace

namespace trtllm_preload
{
namespace
{

std::atomic<Sdk*> gSdks{nullptr};

/// A resolved call, like a bound entry of a procedure linkage table. Valid until an object is unloaded: later another
/// object could be at the same address.
struct CallSite
{
    void const* caller;
    Function function;
    unsigned long long unloaded;
    Sdk* sdk;
};

std::atomic<CallSite const*> gCallSites[64]{};

constexpr char const* kOldAbi = "the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0)";
constexpr char const* kNewAbi = "the new C++ ABI (_GLIBCXX_USE_CXX11_ABI=1)";
#if _GLIBCXX_USE_CXX11_ABI
constexpr char const* kOwnAbi = kNewAbi;
constexpr Function kOwnConstructor = Function::kNewAbi;
constexpr Function kOtherConstructor = Function::kOldAbi;
#else
constexpr char const* kOwnAbi = kOldAbi;
constexpr Function kOwnConstructor = Function::kOldAbi;
constexpr Function kOtherConstructor = Function::kNewAbi;
#endif

std::string nameOf(std::string const& version, bool hasVersion)
{
    return !version.empty() ? "TensorRT-LLM " + version
        : hasVersion        ? "a TensorRT-LLM of unknown version"
                            : "a TensorRT-LLM before 0.12";
}

/// How libstdc++ stores a std::deque<T>. It allocates nodes that hold as many T as fit into 512 bytes, even for an empty
/// deque. So the size of a node shows the size of T.
struct DequeLayout
{
    struct Iterator
    {
        char const* current;
        char const* first;
        char const* last;
        void const* node;
    };

    void const* map;
    std::size_t mapSize;
    Iterator begin;
    Iterator end;
};

static_assert(sizeof(DequeLayout) == sizeof(Iterations), "the preload needs libstdc++, like TensorRT-LLM");

std::ptrdiff_t nodeBytes(Iterations const& records)
{
    DequeLayout layout{};
    std::memcpy(&layout, &records, sizeof(layout));
    return layout.begin.last - layout.begin.first;
}

} // namespace

Sdk::Sdk(Object object)
    : mObject(std::move(object))
{
    // This handle is never closed: the functions must stay loaded even if the host closes its own handle.
    auto* const handle = handleOf(mObject);
    for (std::size_t i = 0; i < kFunctions; ++i)
    {
        auto* const found = ::dlsym(handle == nullptr ? RTLD_NEXT : handle, kMangled[i]);
        mFunctions[i] = found != nullptr && objectOf(found).id == mObject.id ? found : nullptr;
    }
    // Clears the errors of the failed lookups, which the host did not cause.
    ::dlerror();
}

Sdk* Sdk::at(void const* definition)
{
    auto const object = objectOf(definition);
    std::unique_ptr<Sdk> fresh;
    // Searches again after a failed exchange, because another thread may have added the same copy.
    for (auto* first = gSdks.load(std::memory_order_acquire);;)
    {
        for (auto* known = first; known != nullptr; known = known->mNext)
        {
            if (known->mObject.id == object.id)
            {
                return known;
            }
        }
        if (fresh == nullptr)
        {
            fresh.reset(new Sdk(object));
        }
        fresh->mNext = first;
        if (gSdks.compare_exchange_weak(first, fresh.get(), std::memory_order_acq_rel))
        {
            return fresh.release();
        }
    }
}

Sdk* Sdk::of(void const* caller, Function function) noexcept
{
    auto const unloaded = unloadCount();
    auto& slot = gCallSites[(reinterpret_cast<std::size_t>(caller) >> 2) % std::size(gCallSites)];
    auto const* known = slot.load(std::memory_order_acquire);
    if (known != nullptr && known->caller == caller && known->function == function && known->unloaded == unloaded)
    {
        return known->sdk;
    }
    auto const* const definition = definitionFor(caller, kMangled[static_cast<std::size_t>(function)]);
    if (definition == nullptr)
    {
        return nullptr;
    }
    auto* const sdk = at(definition);
    if (known == nullptr || known->unloaded != unloaded)
    {
        // The old entry is not freed, because another thread may be reading it. Without memory, the site stays unknown.
        auto fresh = std::unique_ptr<CallSite const>(new (std::nothrow) CallSite{caller, function, unloaded, sdk});
        if (fresh != nullptr && slot.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel))
        {
            static_cast<void>(fresh.release());
        }
    }
    return sdk;
}

std::string Sdk::difference() const
{
    if (!has(kOwnConstructor))
    {
        return has(kOtherConstructor) ? std::string("it uses ") + (kOwnAbi == kOldAbi ? kNewAbi : kOldAbi)
                + ", but the preload was built for " + kOwnAbi
                                      : "it exports no constructor of the Executor that the preload knows";
    }
    std::string const built = TRTLLM_PRELOAD_VERSION;
    auto* const version = get<char const*()>(Function::kVersion);
    std::string const loaded = version == nullptr ? "" : version();
    if (headersHaveVersion() != (version != nullptr) || (!built.empty() && version != nullptr && built != loaded))
    {
        return "it is " + nameOf(loaded, version != nullptr) + ", but the preload was built for "
            + nameOf(built, headersHaveVersion());
    }
    return {};
}

void Sdk::differs(std::string const& what) noexcept
{
    if (mState.exchange(State::kDiffers) == State::kDiffers)
    {
        return;
    }
    try
    {
        trtllm_exporter::logToStderr("the preload does not fit "
            + (mObject.path.empty() ? std::string("this program") : mObject.path) + ": " + what
            + "; its engines run unchanged and are not published; build the preload for this library with build.sh");
    }
    catch (...) // NOLINT(bugprone-empty-catch): no memory for the message
    {
    }
}

bool Sdk::matches() noexcept
{
    auto state = mState.load(std::memory_order_acquire);
    if (state != State::kUnknown)
    {
        return state != State::kDiffers;
    }
    try
    {
        if (auto const what = difference(); !what.empty())
        {
            differs(what);
            return false;
        }
        mState.compare_exchange_strong(state, State::kPlausible);
        return mState.load(std::memory_order_acquire) != State::kDiffers;
    }
    catch (...)
    {
        return false;
    }
}

bool Sdk::canRead(Iterations const& drained) noexcept
{
    auto state = mState.load(std::memory_order_acquire);
    if (state == State::kReadable)
    {
        return true;
    }
    if (state != State::kPlausible)
    {
        return false;
    }
    try
    {
        if (auto const own = nodeBytes(Iterations{}); nodeBytes(drained) != own)
        {
            differs("its IterationStats has another size than in the headers that the preload was built with");
            return false;
        }
        mState.compare_exchange_strong(state, State::kReadable);
        return mState.load(std::memory_order_acquire) == State::kReadable;
    }
    catch (...)
    {
        return false;
    }
}

bool Sdk::canReadRequests() noexcept
{
    // Releases before 0.12 have no version(), but whenever they changed RequestStats, they changed IterationStats too.
    auto const versionsCompared = !headersHaveVersion() || std::strlen(TRTLLM_PRELOAD_VERSION) != 0;
    return versionsCompared && mState.load(std::memory_order_acquire) == State::kReadable;
}

void abortMissing(Function function) noexcept
{
    // Without the preload, the dynamic linker would have failed with the same message.
    std::fprintf(stderr, "libtrtllm_exporter_preload.so: symbol lookup error: undefined symbol: %s\n",
        kMangled[static_cast<std::size_t>(function)]);
    std::abort();
}

} // namespace trtllm_preload
