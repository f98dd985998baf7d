# Tests the instructions of docs/embedding.md in a fresh prefix. Sourced by run.sh.

# block PAGE LANGUAGE: prints the first block of code in this language.
block() { awk -v start="\`\`\`$2" '$0 == start { on = 1; next } on && /^```/ { exit } on' "$root/docs/$1"; }

compilers() { # every compiler of this machine
    local compiler
    for compiler in g++ clang++; do
        ! command -v $compiler >/dev/null || echo $compiler
    done
}

counts() { # PROGRAM: runs the server of the page; the exporter must count its iterations
    local result=1
    start_sidecar "$socket" || return 1
    timeout 60 "$1" "$work/engines/llama/1" "$socket" && until_metric nv_trt_llm_iterations_total 10 && result=0
    stop_sidecar
    [ $result = 0 ] || echo "$1"
    return $result
}

publisher_page() { # CMake and pkg-config, C++17 and C++20, every compiler
    local folder=$work/pages compiler prefix=$work/fresh
    rm -rf "$folder" "$prefix"
    mkdir -p "$folder/sdk/lib" "$work/engines/llama/1"
    echo 'sim:?rate=0&speed=max' >"$work/engines/llama/1/simulated.engine"
    "$bridge/publisher/packaging/install.sh" "$prefix" || return 1
    ln -sfn "$bridge/sim/include" "$folder/sdk/include"
    ln -sf "$work/plain/libtensorrt_llm.so" "$folder/sdk/lib/"
    block embedding.md cpp >"$folder/server.cc"
    block embedding.md cmake >"$folder/CMakeLists.txt"
    for compiler in $(compilers); do
        cmake -S "$folder" -B "$folder/build-$compiler" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" \
            -DTENSORRT_LLM_ROOT="$folder/sdk" && cmake --build "$folder/build-$compiler" -j2 &&
            counts "$folder/build-$compiler/server" || return 1
        # shellcheck disable=SC2046
        $compiler -std=c++20 -Wall -Wextra -Wpedantic -Werror "$folder/server.cc" \
            $(PKG_CONFIG_PATH=$prefix/share/pkgconfig pkg-config --cflags --libs trtllm_exporter) -isystem "$folder/sdk/include" \
            -L"$folder/sdk/lib" -ltensorrt_llm -Wl,-rpath,"$work/plain" -o "$folder/server-$compiler" &&
            counts "$folder/server-$compiler" || return 1
    done
}
