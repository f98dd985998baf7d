#!/usr/bin/env bash
# Checks that the workspace compiles with the oldest Rust that Cargo.toml promises (rust-version).      usage: tests/msrv.sh
# If rustup has this version, compiles everything with it. To install it: rustup toolchain install 1.89 --profile minimal
# Otherwise, checks only what needs no second compiler: the crates in Cargo.lock, and the functions of the standard library that the
# code calls (clippy's lint incompatible_msrv). Only the old compiler itself finds newer syntax.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
[ -n "$version" ] || { echo "Cargo.toml has no rust-version" >&2; exit 1; }

if command -v rustup >/dev/null && rustup run "$version" rustc --version 2>/dev/null; then
  # Use a separate folder. In a shared folder, each of the two compilers would rebuild everything.
  CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv cargo "+$version" check --workspace --all-targets --locked --quiet
  echo "the workspace compiles with Rust $version"
  exit 0
fi

cargo metadata --format-version 1 --locked | python3 -c '
import json, sys
promised = sys.argv[1]
number = lambda text: [int(part) for part in text.split(".")[:2]]
needs = [(package["name"], package["rust_version"]) for package in json.load(sys.stdin)["packages"] if package["rust_version"]]
newer = [f"{name} needs Rust {version}, but rust-version in Cargo.toml is {promised}" for name, version in needs if number(version) > number(promised)]
sys.exit("\n".join(newer) or 0)
' "$version"
cargo clippy --workspace --all-targets --locked --quiet -- -D clippy::incompatible_msrv
echo "no crate and no call needs a Rust newer than $version; not compiled with it, because rustup does not have it"
