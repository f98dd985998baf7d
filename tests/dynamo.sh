#!/usr/bin/env bash
# Runs the TensorRT-LLM worker of NVIDIA Dynamo from PyPI with the exporter, and compares the numbers. The first run needs the network.
#   tests/dynamo.sh [ARGUMENT of dynamo_worker.py...]
# No GPU is needed: tests/judges/dynamo/standin replaces TensorRT-LLM and PyTorch. Everything else is Dynamo's own code: worker, frontend,
# publisher of statistics and metrics endpoint. DYNAMO=VERSION selects another release. The release is kept in target/tools/dynamo-VERSION.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${DYNAMO:-1.6.1}
venv=target/tools/dynamo-$version

if ! [ -e "$venv/complete" ]; then
  rm -rf "$venv"
  mkdir -p target/tools
  python3 -m venv "$venv"
  pip=("$venv/bin/pip" install --quiet --disable-pip-version-check --retries 10 --timeout 60)
  # Install Dynamo without its dependencies: one of them is only on NVIDIA's own package index, and the worker does not import it.
  "${pip[@]}" --no-deps "ai-dynamo==$version" "ai-dynamo-runtime==$version"
  "${pip[@]}" aiohttp blake3 'kubernetes<33' msgspec numpy pillow 'prometheus-client<1' pydantic pyyaml pyzmq redis tokenizers tqdm \
    'transformers>=4.56' typing-extensions uvloop zstandard
  touch "$venv/complete"
fi
[ -e target/debug/trtllm-exporter ] || [[ " $* " == *" --binary "* ]] || cargo build --quiet
exec "$venv/bin/python" tests/judges/dynamo_worker.py "$@"
