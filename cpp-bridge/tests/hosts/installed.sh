# Tests the files that install.sh installs. Sourced by run.sh.

installed() { # builds the simulated engine and the exporter, and installs the header
    (cd "$root" && cargo build --profile "$profile" --quiet -p trtllm-sim-c) || return 1
    [ -n "${HOSTS_EXPORTER:-}" ] || (cd "$root" && cargo build --profile "$profile" --quiet -p trtllm-exporter) || return 1
    "$bridge/publisher/packaging/install.sh" "$work/prefix"
}

examples() {
    cmake -S "$root/examples/cpp-server" -B "$work/examples" -DCMAKE_PREFIX_PATH="$work/prefix" \
        -DSIMULATED_STEP="$artifacts/libtrtllm_sim_c.a" &&
        cmake --build "$work/examples" -j2
}

globals() { readelf -sW "$1" | awk '($5 == "GLOBAL" || $5 == "WEAK" || $5 == "UNIQUE") && $7 != "UND" { print $8 }'; }

one_version() { # the packages have the version of Cargo.toml, and every name of the header contains this version
    local version unversioned
    version=$(sed -n 's/^version = "\([^"]*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
    [ "$(pkg-config --modversion trtllm_exporter)" = "$version" ] &&
        grep -q "PACKAGE_VERSION $version)" "$work/prefix/share/cmake/trtllm_exporter/trtllm_exporterConfigVersion.cmake" || return 1
    printf '%s\n' '#include "trtllm_exporter/publisher.h"' 'TRTLLM_EXPORTER_VERSION_MAJOR.TRTLLM_EXPORTER_VERSION_MINOR.TRTLLM_EXPORTER_VERSION_PATCH' |
        "${CXX:-g++}" -x c++ -std=c++17 -I"$work/prefix/include" -E -P - | tail -n 1 | tr -d ' ' | grep -qx "$version" || return 1
    # Two plugins with two versions of the header must not share functions or static variables.
    unversioned=$(globals "$work/plain/publisher" | c++filt | grep 'trtllm_exporter::' | grep -v "trtllm_exporter::v${version//./_}::")
    echo "$unversioned" | head
    [ -z "$unversioned" ] && [ "$(globals "$work/plain/publisher" | c++filt | grep -c "trtllm_exporter::v${version//./_}::")" -gt 10 ]
}

installed_sdk() { # CMake finds an installed TensorRT-LLM and CUDA, and the examples compile with its headers
    local root_of=$work/installed/$1
    mkdir -p "$root_of/lib" "$root_of/cuda/include"
    : >"$root_of/cuda/include/cuda_runtime_api.h"
    ln -sfn "$work/$1/include" "$root_of/include"
    ln -sf "$work/$1/libtensorrt_llm.so" "$root_of/lib/"
    CUDA_HOME=$root_of/cuda cmake -S "$root/examples/cpp-server" -B "$root_of/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
        -DCMAKE_BUILD_TYPE=Debug -DTENSORRT_LLM_ROOT="$root_of" && cmake --build "$root_of/build" -j2
}

no_foreign_symbols() { # a host may have its own libstdc++, so the preload must not export symbols of it
    [ -f "$work/plain/preload.so" ] &&
        ! nm -D --defined-only "$work/plain/preload.so" | awk '{ print $3 }' | grep -v '^_ZN12tensorrt_llm8executor8Executor'
}
