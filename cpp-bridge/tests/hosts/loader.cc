// Opens plugins that contain or link TensorRT-LLM with RTLD_LOCAL, as Triton does, and runs each in its own thread.
// $HOST_PLUGIN lists the plugins, separated by colons. If $HOST_DEEPBIND is set, a plugin finds its own symbols first.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>

int main(int count, char** arguments)
{
    using Run = int(int, char**);
    std::vector<Run*> plugins;
    std::istringstream paths(std::getenv("HOST_PLUGIN"));
    auto const flags = RTLD_NOW | RTLD_LOCAL | (std::getenv("HOST_DEEPBIND") == nullptr ? 0 : RTLD_DEEPBIND);
    for (std::string path; std::getline(paths, path, ':');)
    {
        auto* const plugin = ::dlopen(path.c_str(), flags);
        if (plugin == nullptr)
        {
            std::fprintf(stderr, "%s\n", ::dlerror());
            return 1;
        }
        plugins.push_back(reinterpret_cast<Run*>(::dlsym(plugin, "runHost")));
    }
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (auto* const run : plugins)
    {
        threads.emplace_back([&, run] { failed += run(count, arguments) == 0 ? 0 : 1; });
    }
    for (auto& thread : threads)
    {
        thread.join();
    }
    return failed;
}
