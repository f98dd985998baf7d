#!/usr/bin/env bash
# Runs an example server of examples/cpp-server with the exporter inside, on the address that the exporter itself would use.
# usage: TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS=HOST:PORT attached.sh PROGRAM
LISTEN=$TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS MODEL=llama exec "$1" "sim:?rate=0&iter_base_ms=5" 600 20 10
