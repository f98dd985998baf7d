# shellcheck shell=bash disable=SC2034  # the scripts read the variable `checked`
# Functions for the scripts that build and run images. They source this file. It sets two variables: repo, the checkout, and work,
# a temporary folder that is removed at the end.
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

need() { # TOOL...: skips the script if a tool is missing
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
  done
}

work=$(mktemp -d) container="" checked="" registry_process=""
trap clean_up EXIT
clean_up() {
  [ -z "$registry_process" ] || kill "$registry_process" 2>/dev/null || true
  if [ -n "$container" ]; then
    runc --root "$work/runc" kill "$container" KILL >/dev/null 2>&1 || true
    runc --root "$work/runc" delete -f "$container" >/dev/null 2>&1 || true
  fi
  rm -rf "$work"
}

# Lets buildah and skopeo keep everything in $work, and build without a container engine.
use_own_storage() {
  export XDG_RUNTIME_DIR=$work/xdg BUILDAH_ISOLATION=chroot
  export CONTAINERS_STORAGE_CONF=$work/storage.conf
  mkdir -m 0700 "$XDG_RUNTIME_DIR"
  printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "%s"\n' "$work/store" "$work/run" >"$CONTAINERS_STORAGE_CONF"
}

# Starts a registry on this machine and sets the variable registry. Only this script trusts its certificate. Without TLS, buildah
# would need other flags than for a public registry.
start_registry() {
  registry=127.0.0.1:$(python3 "$repo/tests/judges/free_port.py")
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=registry -addext subjectAltName=IP:127.0.0.1 -days 1 \
    -keyout "$work/tls.key" -out "$work/tls.crt" 2>/dev/null
  cat "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$work/tls.crt" >"$work/authorities.crt"
  export SSL_CERT_FILE=$work/authorities.crt
  cat >"$work/registry.yml" <<CONFIGURATION
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: "$registry", tls: {certificate: $work/tls.crt, key: $work/tls.key}}
CONFIGURATION
  docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 & registry_process=$!
  for _ in $(seq 50); do curl -fsS --cacert "$work/tls.crt" "https://$registry/v2/" >/dev/null 2>&1 && return; sleep 0.1; done
  cat "$work/registry.log"; return 1
}

# Builds a stand-in for distroless's cc-debian12:nonroot, which may be unreachable, pushes it to the registry, and sets BASE. The stand-in
# has the same Debian packages, from this machine's mirror, and the same user. If BASE=IMAGE is set in the environment, uses this image
# instead.
provide_base() { # ARCHITECTURE...
  [ -z "${BASE:-}" ] || return 0
  local architecture mirror root options=() package
  local packages=(base-files ca-certificates gcc-12-base libc6 libgcc-s1 libgomp1 libssl3 libstdc++6 media-types netbase tzdata)
  # shellcheck disable=SC2016 # a placeholder of apt, not of the shell
  mirror=$(apt-get indextargets --format '$(SITE)' | head -n 1)
  export BASE=$registry/stand-in/cc-debian12:nonroot # the digest is appended below, as in release.yml
  buildah manifest create base >/dev/null
  for architecture in "$@"; do
    root=$work/base-$architecture
    mkdir -p "$root"/{lists/partial,archives/partial,debs} "$root/root"/{etc/ssl/certs,run,proc,sys,dev,var}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" >"$root/sources.list"
    options=(-q -o Acquire::Retries=5 -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o Dir::State::Status=/dev/null
      -o "Dir::Etc::SourceList=$root/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$root/lists"
      -o "Dir::Cache::Archives=$root/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=)
    if ! apt-get "${options[@]}" update >"$work/log" 2>&1 || ! (cd "$root/debs" && apt-get "${options[@]}" download "${packages[@]}") >>"$work/log" 2>&1; then
      cat "$work/log"; return 1
    fi
    for package in "$root"/debs/*.deb; do dpkg-deb --extract "$package" "$root/root"; done
    # Write the file of CA certificates, as the installation of ca-certificates does. Remove what distroless does not have.
    find "$root/root/usr/share/ca-certificates" -name '*.crt' -print0 | LC_ALL=C sort -z | xargs -0 cat >"$root/root/etc/ssl/certs/ca-certificates.crt"
    rm -rf "$root/root"/usr/{sbin,bin} "$root/root"/usr/share/{ca-certificates,lintian,perl5,man} "$root/root"/usr/lib/*-linux-gnu/{gconv,engines-3,ossl-modules} "$root/root/usr/share/doc"/*/changelog*
    ln -sfn /run "$root/root/var/run"
    install -d -m 1777 "$root/root/tmp"
    printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' >"$root/root/etc/passwd"
    printf 'root:x:0:\nnonroot:x:65532:\n' >"$root/root/etc/group"
    printf 'FROM scratch\nCOPY root/ /\nUSER 65532\n' >"$root/Containerfile"
    buildah bud -q --timestamp 0 --platform "linux/$architecture" --manifest base -f "$root/Containerfile" "$root" >/dev/null
    rm -rf "$root"
  done
  buildah manifest push -q --all --digestfile "$work/base-digest" base "docker://$BASE" >/dev/null
  BASE+=@$(cat "$work/base-digest")
}

architecture_of() { # BINARY: bytes 18 and 19 of an ELF file identify its architecture
  case $(od -An -tu2 -j18 -N2 "$1" | tr -d ' ') in
    62) echo amd64 ;;
    183) echo arm64 ;;
    *) echo "$1 is not a program for amd64 or arm64" >&2; return 1 ;;
  esac
}

# Runs an image with a read-only root, no capabilities and uid 65532. Scrapes it, and stops it with SIGTERM. Leaves the page in $work/page, the architecture in $checked
# and the unpacked image in $bundle/rootfs. The image must name the architecture of its program. A program for another architecture runs in an emulator.
check_image() { # FOLDER:TAG [ARGUMENT...]      FOLDER is an OCI layout; the arguments are those of the exporter
  local image=$1 shells size architecture named cpu emulator="" port runner code began took packed
  shift
  [ $# -gt 0 ] || set -- --gpu=auto --source=sim:
  bundle=$(mktemp -d "$work/bundle.XXXX")
  umoci unpack --image "$image" "$bundle" >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  architecture=$(architecture_of "$bundle/rootfs/usr/bin/trtllm-exporter")
  named=$(skopeo inspect --config "oci:$image" | python3 -c 'import json, sys; c = json.load(sys.stdin); print(c["os"], c["architecture"])')
  [ "$named" = "linux $architecture" ] || { echo "the image is for \"$named\", but its program for \"linux $architecture\""; return 1; }
  packed=$(skopeo inspect --raw "oci:$image" | python3 -c 'import json, sys; print(sum(layer["size"] for layer in json.load(sys.stdin)["layers"]) // 1024)')
  size=$(du -sk "$bundle/rootfs" | cut -f1)
  [ "$packed" -le $((25 * 1024)) ] || { echo "the image has $((packed / 1024)) MiB to download instead of at most 25 MiB"; return 1; }
  shells=$(find "$bundle/rootfs" \( -name sh -o -name bash -o -name dash -o -name busybox -o -name apt -o -name dpkg \) ! -type d -printf '/%P ')
  [ -z "$shells" ] || { echo "the image has a shell or a package manager: $shells"; return 1; }
  skopeo inspect --config "oci:$image" | python3 -c '
import json, sys
config = json.load(sys.stdin)["config"]
missing = [key for key in ("title", "description", "source", "licenses", "version", "revision", "base.name")
           if not config["Labels"].get("org.opencontainers.image." + key)]
assert not missing, "labels are missing: %s" % missing
assert config["User"].split(":")[0] == "65532", "the user of the image is " + config["User"]' || return 1
  if [ "$architecture" != "$(dpkg --print-architecture)" ]; then
    cpu=x86_64; [ "$architecture" = amd64 ] || cpu=aarch64
    need "qemu-$cpu-static"
    emulator=$(command -v "qemu-$cpu-static")
  fi
  port=$(python3 "$repo/tests/judges/free_port.py")
  python3 - "$bundle/config.json" "$port" "$emulator" "$@" <<'PYTHON'
import json, sys
file, port, emulator, arguments = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
config = json.load(open(file))
process = config["process"]
process.update(terminal=False, rlimits=[], noNewPrivileges=True)
process["args"] = process["args"][:1] + arguments
process["env"].append(f"TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS=127.0.0.1:{port}")
process["capabilities"] = {kind: [] for kind in process.get("capabilities", {})}
assert process["user"]["uid"] == 65532 and process["user"]["gid"] == 65532, process["user"]
config["root"]["readonly"] = True
linux = config["linux"]
linux.pop("resources", None)
config["mounts"] = [mount for mount in config["mounts"] if mount["type"] != "cgroup"]
config["mounts"].append({"destination": "/run/trtllm-exporter", "type": "tmpfs", "source": "tmpfs",
                         "options": ["nosuid", "nodev", "mode=0770", "uid=65532", "gid=65532"]})
if emulator:  # the emulator is a static program, and runs the image's own loader and libraries
    process["args"].insert(0, "/emulator")
    config["mounts"].append({"destination": "/emulator", "type": "bind", "source": emulator, "options": ["bind", "ro"]})
linux["namespaces"] = [space for space in linux["namespaces"] if space["type"] != "network"]  # the host can scrape it
json.dump(config, open(file, "w"))
PYTHON
  container=trtllm-$$-$architecture
  rm -f "$work/page"
  runc --root "$work/runc" run --bundle "$bundle" "$container" </dev/null >"$work/log" 2>&1 & runner=$!
  for _ in $(seq 150); do
    if curl -fsS -o "$work/page" "http://127.0.0.1:$port/metrics" 2>/dev/null; then
      # With --source=sim:, wait until the simulated engine has iterations.
      case " $* " in *" --source=sim: "*) ;; *) break ;; esac
      ! grep -q '^nv_trt_llm_iterations_total{.*} [1-9]' "$work/page" || break
    fi
    kill -0 "$runner" 2>/dev/null || break
    sleep 0.1
  done
  [ -s "$work/page" ] || { echo "no page from the container:"; cat "$work/log"; return 1; }
  case " $* " in
    *" --source=sim: "*) grep -q '^nv_trt_llm_iterations_total{.*} [1-9]' "$work/page" || { echo "the simulated engine has no iterations:"; cat "$work/log"; return 1; } ;;
  esac
  began=$(date +%s%N)
  runc --root "$work/runc" kill "$container" TERM
  wait "$runner" && code=0 || code=$?
  took=$(( ($(date +%s%N) - began) / 1000000 ))
  [ "$code" = 0 ] || { echo "exit code $code after SIGTERM instead of 0"; cat "$work/log"; return 1; }
  container="" checked=$architecture
  echo "image for $architecture: $((size / 1024)) MiB, $((packed / 1024)) MiB to download; ran read-only as 65532${emulator:+ in an emulator}, $(grep -vc '^#' "$work/page") series, SIGTERM to exit $took ms"
}
