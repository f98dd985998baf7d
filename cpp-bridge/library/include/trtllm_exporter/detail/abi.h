#pragma once

// The C interface of libtrtllm_exporter. Records are JSON lines in the format of the exporter's ingest socket, and the
// options are JSON, too. So any header works with any library of the same major number: unknown keys are ignored, and
// missing keys have defaults. A function is removed or changed only with a new major number of the soname.

#include <cstddef>
#include <cstdint>

struct trtllm_exporter_engine;

// The functions of a static library stay inside the program or plugin that contains it. Otherwise a second plugin with
// another version could call them. The package files of the static library define TRTLLM_EXPORTER_STATIC.
#if defined(TRTLLM_EXPORTER_STATIC)
#pragma GCC visibility push(hidden)
#else
#pragma GCC visibility push(default)
#endif
extern "C"
{
    /// Adds an engine to the page at the address `listen`, or starts this page. Returns null and writes the reason to
    /// `error` on failure. The options are an object with the keys listen, telemetry_path, hello (the object in the
    /// first line on the ingest socket), engine_version and stale_after_ms.
    trtllm_exporter_engine* trtllm_exporter_open(
        char const* options, std::size_t length, char* error, std::size_t error_size);
    /// Takes one line, without its line feed. Returns 0 if it is counted.
    int trtllm_exporter_publish(trtllm_exporter_engine const*, char const* line, std::size_t length);
    /// Ends one poll: the page now shows the lines of this poll. `failure` is null on success.
    void trtllm_exporter_end_poll(trtllm_exporter_engine const*, std::uint64_t took_us, char const* failure);
    /// Writes HOST:PORT of the page. Returns the file descriptor of its listening socket, or -1. The child of a fork
    /// must close it.
    int trtllm_exporter_address(trtllm_exporter_engine const*, char* address, std::size_t size);
    void trtllm_exporter_close(trtllm_exporter_engine*);
}
#pragma GCC visibility pop
