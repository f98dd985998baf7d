# shellcheck shell=bash disable=SC2154  # the variables of dry-run.sh and image_checks.sh
# Installs, scrapes and removes each artefact of a release. Sourced by deploy/release/dry-run.sh.

stop() { # PROCESS: sends SIGTERM; the process must end with code 0
  local code=0
  kill "$1" 2>/dev/null || true
  wait "$1" || code=$?
  [ $code = 0 ] || { echo "exit code $code after SIGTERM"; return 1; }
}
# Starts a program, waits until its page has iterations of the engine, and stops it.
scraped() { # MODEL COMMAND...
  local model=$1 port process iterations
  shift
  port=$(python3 "$repo/tests/judges/free_port.py")
  TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS=127.0.0.1:$port "$@" >"$work/log" 2>&1 & process=$!
  for _ in $(seq 150); do
    curl -fsS -o "$work/page" "http://127.0.0.1:$port/metrics" 2>/dev/null || true
    iterations=$(grep -oE "^nv_trt_llm_iterations_total\{.*model=\"$model\".*\} [1-9][0-9]*" "$work/page" 2>/dev/null || true)
    [ -z "$iterations" ] || break
    kill -0 $process 2>/dev/null || break
    sleep 0.1
  done
  [ -n "$iterations" ] || { echo "no iterations of $model on the page:"; cat "$work/log"; kill $process; return 1; }
  stop $process && echo "scraped $(grep -vc '^#' "$work/page") series, ${iterations##* } iterations"
}
files_of() { find "$1" -xdev ! -path '*/proc/*' ! -path '*/dev/*' ! -path '*/sys/*' | LC_ALL=C sort; }

# Unpacks the base image as the root file system $work/bare. It has glibc and no build tools, and its package manager does not know
# the exporter.
bare_root() {
  [ -d "$work/bare" ] || { # skopeo takes a tag or a digest, not both
    skopeo copy -q --override-arch "$architecture" "docker://$(sed -E 's/:[^:/@]+@/@/' <<<"$BASE")" "oci:$work/base:bare" && umoci unpack --image "$work/base:bare" "$work/bare" >/dev/null 2>&1
  }
}
tarball() {
  local root=$work/bare/rootfs
  bare_root || return 1
  files_of "$root" >"$work/before"
  tar -xzf "$1" -C "$root" || return 1
  scraped sim chroot "$root" "/$(basename "$1" .tar.gz)/trtllm-exporter" --source=sim: --model=sim --gpu=off || return 1
  chroot "$root" "/$(basename "$1" .tar.gz)/trtllm-doctor" --version || return 1
  rm -r "${root:?}/$(basename "$1" .tar.gz)"
  rm -f "$root"/run/trtllm-exporter/*
  files_of "$root" | diff "$work/before" - && echo "removed without a trace"
}
package() { # PACKAGE: installs, upgrades and removes it in a booted systemd
  LIMIT=600 PAGE=$work/page "$repo/tests/deploy/run_systemd.sh" "$1" "${DEBIAN:-$work/debian}" >"$work/systemd" || { cat "$work/systemd"; return 1; }
  grep -E '^(after-install|exposure|remove|left)' "$work/systemd"
  echo "scraped $(grep -vc '^#' "$work/page") series"
}
# Scrapes the exporter of the release while a command publishes to its socket as the model llama.
received() { # COMMAND...
  local socket=$work/publisher.sock publisher code=0
  SOCKET=$socket TRTLLM_EXPORTER_SOCKET=$socket MODEL=llama TRTLLM_EXPORTER_MODEL=llama "$@" >"$work/published" 2>&1 & publisher=$!
  scraped llama "$folder/$architecture/trtllm-exporter" --source="socket:$socket" --gpu=off || { cat "$work/published"; code=1; }
  kill $publisher
  wait $publisher 2>/dev/null || true
  return $code
}
cpp() { # ARCHIVE: builds the example servers and the preload with it, and scrapes an exporter to which each server publishes
  local prefix=$work/cpp/${1##*/} build=$work/examples
  mkdir "$work/cpp" && tar -xzf "$1" -C "$work/cpp" || return 1
  prefix=${prefix%.tar.gz}
  # The engine of the simulated SDK is written in Rust.
  local step=${SIMULATED_STEP:-$repo/target/release/libtrtllm_sim_c.a} load=("sim:?rate=0&iter_base_ms=5" 600 20 10)
  [ -e "$step" ] || (cd "$repo" && cargo build --release --locked --quiet --package trtllm-sim-c) || return 1
  if ! cmake -S "$repo/examples/cpp-server" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" -DSIMULATED_STEP="$step" >"$work/log" ||
    ! cmake --build "$build" --target published untouched >>"$work/log" ||
    ! "$prefix/share/trtllm_exporter/preload/build.sh" "$repo/cpp-bridge/sim/include" "$build/preload.so" "$build/libtensorrt_llm.so" >>"$work/log"; then
    cat "$work/log"; return 1
  fi
  received "$build/published" "${load[@]}" && received env "LD_PRELOAD=$build/preload.so" "$build/untouched" "${load[@]}" || return 1
  rm -r "$work/cpp" "$build"
}
wheel() { # WHEEL: installs it; its demo publishes to the exporter of the release; then removes it
  local socket=$work/wheel.sock publisher code=0
  python3 -m venv --without-pip "$work/venv" && files_of "$work/venv" >"$work/before" || return 1
  python3 -m pip --python "$work/venv" install --quiet --disable-pip-version-check --no-index --no-compile "$1" || return 1
  PYTHONDONTWRITEBYTECODE=1 "$work/venv/bin/python" -m trtllm_exporter_publisher.demo --socket "$socket" --model demo >/dev/null 2>&1 & publisher=$!
  scraped demo "$folder/$architecture/trtllm-exporter" --source="socket:$socket" --gpu=off || code=1
  kill $publisher; wait $publisher 2>/dev/null || true
  [ $code = 0 ] || return 1
  python3 -m pip --python "$work/venv" uninstall --quiet --yes trtllm-exporter-publisher || return 1
  files_of "$work/venv" | diff "$work/before" - && echo "removed without a trace"
}
image() { # pushes the image, pulls it, and runs it without root and without write access
  local reference="docker://$registry/trtllm-exporter:$version" each
  "$repo/deploy/release/image.sh" "$folder" "$registry/trtllm-exporter" "${architectures[@]}" || return 1
  for each in "${architectures[@]}"; do
    skopeo copy -q --override-arch "$each" "$reference" "oci:$work/oci:$each" && check_image "$work/oci:$each" || return 1
    [ "$checked" = "$each" ] || { echo "the index has the image for $checked as that for $each"; return 1; }
  done
}
chart() { # pushes the chart, pulls it by its name, and renders it with the digest of the image
  local digest
  digest=$(cat "$folder/image-digest")
  "$repo/deploy/release/push-chart.sh" "$folder" "$registry/charts" >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  "$HELM" template trtllm-exporter "oci://$registry/charts/trtllm-exporter" --version "$version" --kube-version 1.35.0 \
    --set "image.repository=$registry/trtllm-exporter" --set "image.digest=$digest" >"$work/manifests.yaml" 2>"$work/log" || { cat "$work/log"; return 1; }
  grep -q "image: $registry/trtllm-exporter@$digest\$" "$work/manifests.yaml" || { echo "the pods do not use the pushed image"; return 1; }
  skopeo inspect "docker://$registry/trtllm-exporter@$digest" >/dev/null || return 1
  "$repo/target/tools/manifests" decode "$work/manifests.yaml"
}
monitoring() {
  local top
  tar -xzf "$1" -C "$work" || return 1
  top=$work/$(basename "$1" .tar.gz)
  (cd "$top/prometheus" && promtool check rules recording.yml alerts.yml alerts-gpu.yml && promtool check config scrape.yaml) >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  python3 -c 'import json, sys; print(*[json.load(open(file))["title"] for file in sys.argv[1:]], sep=", ")' "$top"/grafana/*.json
  rm -r "$top"
}
repository() { # PACKAGE: the repository of docs/install.md for apt and Helm, from which a Debian installs the package
  local root=${DEBIAN:-$work/debian} port server code=0
  mkdir -p "$work/repository" && cp "$1" "$folder"/trtllm-exporter-chart-*.tgz "$work/repository/" || return 1
  (cd "$work/repository" && dpkg-scanpackages --multiversion . >Packages && "$HELM" repo index .) 2>"$work/log" || { cat "$work/log"; return 1; }
  port=$(python3 "$repo/tests/judges/free_port.py")
  python3 -m http.server --bind 127.0.0.1 --directory "$work/repository" "$port" >/dev/null 2>&1 & server=$!
  curl -fs --retry 20 --retry-delay 1 --retry-connrefused -o /dev/null "http://127.0.0.1:$port/Packages"
  # Only this source: the Debian has the dependencies.
  echo "deb [trusted=yes] http://127.0.0.1:$port ./" >"$root/root/sources.list"
  local apt=(chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes -o Dir::Etc::SourceList=/root/sources.list -o Dir::Etc::SourceParts=/dev/null)
  if "${apt[@]}" -o APT::Update::Error-Mode=any update >"$work/log" 2>&1 && "${apt[@]}" install trtllm-exporter >>"$work/log" 2>&1; then
    scraped sim chroot "$root" trtllm-exporter --source=sim: --model=sim --gpu=off || code=1
    "${apt[@]}" purge trtllm-exporter >>"$work/log" 2>&1 || code=1
  else
    cat "$work/log"; code=1
  fi
  "$HELM" template trtllm-exporter trtllm-exporter --repo "http://127.0.0.1:$port" --kube-version 1.35.0 --set image.repository=x >/dev/null || code=1
  kill $server; wait $server 2>/dev/null || true
  return $code
}
