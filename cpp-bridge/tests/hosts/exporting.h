#pragma once

// What the tests of exporter.h share: an engine, its load, its page and the log.

#include "check.h"

#include "trtllm_exporter/exporter.h"

#include "tensorrt_llm/executor/executor.h"

#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tle = tensorrt_llm::executor;
using namespace std::chrono_literals;
using trtllm_exporter::Exporter;

inline std::string const kPath = "/tmp/trtllm-exporter-test-" + std::to_string(::getpid()) + ".sock";

struct CapturedLog
{
    std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
    std::shared_ptr<std::string> text = std::make_shared<std::string>();

    trtllm_exporter::Options options(std::string const& listen, std::string const& socket = "") const
    {
        trtllm_exporter::Options options;
        options.listen = listen;
        options.socket = socket;
        options.interval = 10ms;
        options.stopTimeout = 60s; // no test loses the last records, even on a slow machine
        options.publisher.linger = 5ms;
        options.publisher.log = [*this](std::string_view line)
        {
            std::lock_guard const lock(*mutex);
            *text += std::string(line) + "\n";
        };
        return options;
    }

    std::string all() const
    {
        std::lock_guard const lock(*mutex);
        return *text;
    }
};

inline std::shared_ptr<tle::Executor> engine(std::string const& options = "rate=0&speed=max")
{
    return std::make_shared<tle::Executor>("sim:?" + options, tle::ModelType::kDECODER_ONLY, tle::ExecutorConfig());
}

inline std::vector<tle::Response> work(tle::Executor& executor, int iterations)
{
    tle::VecTokens tokens(8);
    std::iota(tokens.begin(), tokens.end(), 1);
    tle::OutputConfig output;
    output.returnPerfMetrics = true;
    tle::Request request(tokens, iterations);
    request.setOutputConfig(output);
    return executor.awaitResponses(executor.enqueueRequest(request), 60000ms);
}

inline int connectTo(std::string const& address)
{
    auto const colon = address.rfind(':');
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
    ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &peer.sin_addr);
    auto const connection = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(connection, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) != 0)
    {
        ::close(connection);
        return -1;
    }
    return connection;
}

inline std::string get(std::string const& address, std::string const& path)
{
    auto const connection = connectTo(address);
    if (connection < 0)
    {
        return "";
    }
    auto const request = "GET " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    CHECK(::send(connection, request.data(), request.size(), MSG_NOSIGNAL) > 0);
    std::string answer;
    char bytes[16384];
    for (ssize_t got = 0; (got = ::read(connection, bytes, sizeof(bytes))) > 0;)
    {
        answer.append(bytes, static_cast<std::size_t>(got));
    }
    ::close(connection);
    return answer;
}

inline std::string page(Exporter const& exporter)
{
    return get(exporter.address(), "/metrics");
}

inline std::string series(std::string const& name, std::uint64_t value)
{
    return "\n" + name + "{model=\"tensorrt_llm\",version=\"1\"} " + std::to_string(value) + "\n";
}
