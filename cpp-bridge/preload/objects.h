#pragma once

// The program and the libraries that are loaded in this process.

#include <string>
#include <vector>

namespace trtllm_preload
{

struct Object
{
    void const* id{nullptr}; ///< the same for two addresses in one object; nullptr if no object contains the address
    std::string path;        ///< empty for the program itself
};

/// The object that contains this address.
[[nodiscard]] Object objectOf(void const* address);

/// All objects, in the order in which they were loaded.
[[nodiscard]] std::vector<Object> allObjects();

/// Finds the definition that a reference in the object of `caller` would have without the preload. Returns nullptr if
/// no object defines the symbol.
[[nodiscard]] void* definitionFor(void const* caller, char const* symbol);

/// A handle of a loaded library for dlsym(), or nullptr. The library stays loaded until dlclose().
[[nodiscard]] void* handleOf(Object const& object) noexcept;

/// How many objects were ever unloaded. Does not wait for a dlopen() in another thread.
[[nodiscard]] unsigned long long unloadCount() noexcept;

} // namespace trtllm_preload
