# Tests the instructions of docs/embedding-*.md in a fresh prefix. Sourced by run.sh.

# block PAGE LANGUAGE: prints the first block of code in this language.
block() { awk -v start="\`\`\`$2" '$0 == start { on = 1; next } on && /^```/ { exit } on' "$root/docs/$1"; }

compilers() { # every compiler of this machine
    local compiler
    for compiler in g++ clang++; do
        ! command -v $compiler >/dev/null || echo $compiler
    done
}

serves() { # PROGRAM: checks that the server of the page runs and that its metrics have the iterations, then closes its standard input to end it
    local address result=1 _
    rm -f "$work/stdin" "$work/log"
    mkfifo "$work/stdin"
    (cd "$work/pages" && exec timeout 60 "$1" "$work/engines/llama/1") <"$work/stdin" >"$work/log" 2>&1 &
    exec 9>"$work/stdin"
    for _ in $(seq 600); do
        address=$(sed -n 's/.*serving \(http:[^ ]*\).*/\1/p' "$work/log")
        if [ -n "$address" ] && curl -s "$address" | grep -q '^nv_trt_llm_iterations_total{model="llama",.*} [1-9]'; then
            result=0
            break
        fi
        sleep 0.1
    done
    exec 9>&-
    wait $! && return $result
}

library_page() { # pkg-config and CMake, shared and static, C++17 and C++20, every compiler
    local folder=$work/pages compiler standard package prefix=$work/fresh
    rm -rf "$folder" "$prefix"
    mkdir -p "$folder/sdk/lib" "$work/engines/llama/1"
    echo 'sim:?rate=0&speed=max' >"$work/engines/llama/1/simulated.engine"
    PROFILE=${artifacts##*/} "$bridge/library/packaging/install.sh" "$prefix" "$target" || return 1
    ln -sfn "$bridge/sim/include" "$folder/sdk/include"
    ln -sf "$work/plain/libtensorrt_llm.so" "$folder/sdk/lib/"
    # The server on the documentation page ends immediately. Here it waits until its metrics have been read.
    block embedding-library.md cpp | sed 's/0.0.0.0:8002/127.0.0.1:0/; s/^}$/    static_cast<void>(std::getchar());\n}/' >"$folder/server.cc"
    sed -i '1i #include <cstdio>' "$folder/server.cc"
    block embedding-library.md cmake >"$folder/CMakeLists.txt"
    cat >>"$folder/CMakeLists.txt" <<'CMAKE'
add_executable(server20 server.cc)
set_target_properties(server20 PROPERTIES CXX_STANDARD 20)
target_include_directories(server20 SYSTEM PRIVATE "${TENSORRT_LLM_ROOT}/include")
target_link_libraries(server20 PRIVATE trtllm_exporter::static "${TENSORRT_LLM_ROOT}/lib/libtensorrt_llm.so")
CMAKE
    for compiler in $(compilers); do
        cmake -S "$folder" -B "$folder/build-$compiler" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" \
            -DTENSORRT_LLM_ROOT="$folder/sdk" && cmake --build "$folder/build-$compiler" -j2 &&
            serves "$folder/build-$compiler/server" && serves "$folder/build-$compiler/server20" || return 1
        for package in trtllm_exporter:17 trtllm_exporter-static:20; do
            standard=${package#*:} package=${package%:*}
            # shellcheck disable=SC2046
            $compiler -std=c++"$standard" -Wall -Wextra -Wpedantic -Werror "$folder/server.cc" \
                $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs $package) -isystem "$folder/sdk/include" \
                -L"$folder/sdk/lib" -ltensorrt_llm -Wl,-rpath,"$work/plain:$prefix/lib" -o "$folder/server" &&
                serves "$folder/server" || { echo "$compiler, $package, C++$standard"; return 1; }
        done
    done
}

publisher_page() { # the header alone, C++17 and C++20, every compiler
    local folder=$work/pages compiler standard result=0
    rm -rf "$work/fresh"
    "$bridge/library/packaging/install.sh" --publisher "$work/fresh" && [ "$(find "$work/fresh" -type f | wc -l)" = 1 ] || return 1
    block embedding-publisher.md cpp >"$folder/publisher.cc"
    for compiler in $(compilers); do
        for standard in 17 20; do
            $compiler -std=c++$standard -Wall -Wextra -Wpedantic -Werror -pthread "$folder/publisher.cc" -I"$work/fresh/include" \
                -isystem "$folder/sdk/include" -L"$folder/sdk/lib" -ltensorrt_llm -Wl,-rpath,"$work/plain" -o "$folder/publisher" &&
                start_sidecar "$socket" || return 1
            timeout 60 "$folder/publisher" "$work/engines/llama/1" "$socket" && until_metric nv_trt_llm_iterations_total 10 || result=1
            stop_sidecar
            [ $result = 0 ] || { echo "$compiler, C++$standard"; return 1; }
        done
    done
}
