#!/usr/bin/env bash
# Runs a server of examples/cpp-server that contains the exporter. The page has the address that the variable of a separate exporter
# sets.
# usage: TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS=HOST:PORT attached.sh PROGRAM
LISTEN=$TRTLLM_EXPORTER_WEB_LISTEN_ADDRESS MODEL=llama exec "$1" "sim:?rate=0&iter_base_ms=5" 600 20 10
