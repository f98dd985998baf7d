// Opens a plugin that links TensorRT-LLM with RTLD_LOCAL, as Triton does.

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

int main(int count, char** arguments)
{
    auto* const plugin = ::dlopen(std::getenv("HOST_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr)
    {
        std::fprintf(stderr, "%s\n", ::dlerror());
        return 1;
    }
    return reinterpret_cast<int (*)(int, char**)>(::dlsym(plugin, "runHost"))(count, arguments);
}
