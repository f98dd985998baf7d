# Tests the files that install.sh installs. Sourced by run.sh.

library() {
    (cd "$root" && cargo build --profile "$profile" --quiet -p trtllm-embed -p trtllm-sim-c) || return 1
    # Build the exporter separately: the library has no C++ Executor, and one build would give both the same features.
    [ -n "${TRTLLM_EMBED_EXPORTER:-}" ] || (cd "$root" && cargo build --profile "$profile" --quiet -p trtllm-exporter) || return 1
    PROFILE=${artifacts##*/} "$bridge/library/packaging/install.sh" "$work/prefix" "$target"
}

examples() {
    cmake -S "$root/examples/cpp-server" -B "$work/examples" -DCMAKE_PREFIX_PATH="$work/prefix" \
        -DSIMULATED_STEP="$artifacts/libtrtllm_sim_c.a" &&
        cmake --build "$work/examples" -j2
}

by_pkg_config() { # builds and runs the tests of exporter.h, with the flags of pkg-config
    local folder=$work/$1
    shift
    export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
    # shellcheck disable=SC2046
    ${CXX:-g++} "${flags[@]}" "$@" $(pkg-config --cflags trtllm_exporter) "${sim[@]}" "$here"/{exporter,stopping}.cc \
        -o "$folder/exporter" -L"$folder" -ltensorrt_llm $(pkg-config --libs trtllm_exporter) \
        -Wl,-rpath,"$folder:$work/prefix/lib" && timeout 300 "$folder/exporter"
}

globals() { readelf -sW "$1" | awk '($5 == "GLOBAL" || $5 == "WEAK" || $5 == "UNIQUE") && $7 != "UND" { print $8 }'; }

beside() { # the static library in a host with another Rust archive and the system's zstd, which come after it in link order
    local zstd
    zstd=$(ldconfig -p | awk '/libzstd\.so\.1 / { print $NF; exit }')
    [ -n "$zstd" ] || { echo "no libzstd.so.1; install libzstd1"; return 1; }
    export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
    # With LTO, an archive contains everything that it uses of the standard library under global names.
    # shellcheck disable=SC2046
    rustc --edition 2024 -O -C lto=fat --crate-type staticlib "$here/beside/archive.rs" -o "$work/libbeside.a" &&
        ${CXX:-g++} "${flags[@]}" $(pkg-config --cflags trtllm_exporter-static) "${sim[@]}" "$here/beside.cc" \
            -o "$work/beside" -L"$work/plain" -ltensorrt_llm $(pkg-config --static --libs trtllm_exporter-static) \
            "$work/libbeside.a" "$zstd" -Wl,-rpath,"$work/plain" &&
        ! readelf -d "$work/beside" | grep libtrtllm_exporter && timeout 60 "$work/beside"
}

static_is_small() { # only the functions of exporter.h are global
    ! globals "$work/prefix/lib/libtrtllm_exporter.a" | grep -v '^trtllm_exporter_' &&
        [ "$(globals "$work/prefix/lib/libtrtllm_exporter.a" | wc -l)" = 5 ] &&
        { [ "$profile" != release ] || [ "$(stat -c %s "$work/prefix/lib/libtrtllm_exporter.a")" -le 15000000 ]; }
}

functions_have_versions() { # checks the shared library; the functions of the static one must stay hidden inside a plugin
    export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
    [ "$(nm -D --defined-only "$work/prefix/lib/libtrtllm_exporter.so" | grep -c ' T trtllm_exporter_.*@@TRTLLM_EXPORTER_0$')" = 5 ] || return 1
    # shellcheck disable=SC2046
    ${CXX:-g++} "${flags[@]}" -fPIC -shared $(pkg-config --cflags trtllm_exporter-static) "${sim[@]}" "$here/other_header.cc" \
        -o "$work/plugin-with-exporter.so" $(pkg-config --static --libs trtllm_exporter-static) &&
        ! nm -D "$work/plugin-with-exporter.so" | grep trtllm_exporter_
}

# other_header NAME SED: changes the installed headers with SED, compiles a host against them, and runs it with the
# library.
other_header() {
    local folder=$work/header-$1 file
    mkdir -p "$folder/trtllm_exporter"
    for file in publisher exporter; do
        sed "$2" "$work/prefix/include/trtllm_exporter/$file.h" >"$folder/trtllm_exporter/$file.h"
    done
    ! diff -r "$folder/trtllm_exporter" "$work/prefix/include/trtllm_exporter" >"$folder/changes" &&
        ${CXX:-g++} "${flags[@]}" -I"$folder" "${sim[@]}" "$here/other_header.cc" -o "$folder/host" -L"$work/plain" -ltensorrt_llm \
            -L"$work/prefix/lib" -ltrtllm_exporter -Wl,-rpath,"$work/plain:$work/prefix/lib" && timeout 60 "$folder/host"
}

other_headers() { # an older header lacks the newest options and members; a newer one has some that the library does not know
    other_header older '/engine_version\\":/d; /escaped(mOptions.engineVersion)/d; s/V(pinnedMemUsage, pinned_mem_usage)//' &&
        other_header newer 's/{\\"listen\\"/{\\"newer_option\\":[1],\\"listen\\"/; s/{\\"iter\\":/{\\"newer_member\\":[{}],\\"iter\\":/'
}

one_version() { # the packages have the version of Cargo.toml, and every name of the headers contains this version
    local version unversioned
    version=$(sed -n 's/^version = "\([^"]*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
    export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
    [ "$(pkg-config --modversion trtllm_exporter)" = "$version" ] && [ "$(pkg-config --modversion trtllm_exporter-static)" = "$version" ] &&
        grep -q "PACKAGE_VERSION $version)" "$work/prefix/lib/cmake/trtllm_exporter/trtllm_exporterConfigVersion.cmake" || return 1
    printf '%s\n' '#include "trtllm_exporter/publisher.h"' 'TRTLLM_EXPORTER_VERSION_MAJOR.TRTLLM_EXPORTER_VERSION_MINOR.TRTLLM_EXPORTER_VERSION_PATCH' |
        "${CXX:-g++}" -x c++ -std=c++17 -I"$work/prefix/include" -E -P - | tail -n 1 | tr -d ' ' | grep -qx "$version" || return 1
    # Two plugins with two versions of the headers must not share functions or static variables.
    unversioned=$(globals "$work/plain/exporter" | c++filt | grep 'trtllm_exporter::' | grep -v "trtllm_exporter::v${version//./_}::")
    echo "$unversioned" | head
    [ -z "$unversioned" ] && [ "$(globals "$work/plain/exporter" | c++filt | grep -c "trtllm_exporter::v${version//./_}::")" -gt 10 ]
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

no_foreign_symbols() { # a host may have its own Rust and libstdc++, so the libraries must not export symbols of theirs
    [ -f "$work/prefix/lib/libtrtllm_exporter.so" ] && [ -f "$work/plain/preload.so" ] &&
        ! nm -D --defined-only "$work/prefix/lib/libtrtllm_exporter.so" | awk '{ print $3 }' | grep -v -e '^trtllm_exporter_' -e '^TRTLLM_EXPORTER_0$' &&
        ! nm -D --defined-only "$work/plain/preload.so" | awk '{ print $3 }' | grep -v -e '^_ZN12tensorrt_llm8executor8Executor' -e '^pthread_create$'
}
