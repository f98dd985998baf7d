# Tests the examples with the real exporter. Sourced by run.sh.

published() {
    local finished
    start_sidecar "$socket" || return 1
    SOCKET=$socket "$work/examples/published" "sim:?rate=0&iter_base_ms=5" 3 20 10 | tee "$work/host" &&
        finished=$(grep -oP 'finished=\K\d+' "$work/host") &&
        until_metric nv_trt_llm_time_to_first_token_seconds_count "$finished" &&
        until_metric nv_trt_llm_iterations_lost_total 0 && completed "$finished"
    local result=$?
    stop_sidecar
    return $result
}

untouched() {
    local finished
    start_sidecar "$socket" || return 1
    TRTLLM_EXPORTER_SOCKET=$socket LD_PRELOAD=$work/examples/libtrtllm_exporter_preload.so \
        "$work/examples/untouched" "sim:?rate=0&iter_base_ms=5" 3 20 10 | tee "$work/host" &&
        finished=$(grep -oP 'finished=\K\d+' "$work/host") && completed "$finished" &&
        until_metric nv_trt_llm_iterations_lost_total 0
    local result=$?
    stop_sidecar
    return $result
}

# on_page PATTERN: searches the page. Does not use a pipe: grep would end at the first match, and the writer of
# the page would then fail.
on_page() { grep -q "$1" <<<"$(page)"; }

python_package() { # installs the package with pip, and checks that the exporter accepts what the package publishes
    rm -rf "$work/python"
    mkdir "$work/python"
    cp -r "$root"/examples/python/{pyproject.toml,README.md,trtllm_exporter_publisher} "$work/python/" &&
        python3 -m venv "$work/venv" &&
        "$work/venv/bin/pip" install --quiet --disable-pip-version-check --retries 10 --timeout 60 "$work/python" &&
        grep -q "^version = \"$(sed -n 's/^version = "\([^"]*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)\"$" "$work/python/pyproject.toml" &&
        start_sidecar "$socket" || return 1
    PYTHONPATH=$root/examples/python/tests "$work/venv/bin/python" - "$socket" <<'PY' && {
import sys
import test_publisher
import trtllm_exporter_publisher
assert "site-packages" in trtllm_exporter_publisher.__file__, trtllm_exporter_publisher.__file__
llm = test_publisher.LookAlikeLLM()
with trtllm_exporter_publisher.publishing(llm, sys.argv[1]) as publisher:
    for output in llm.generate([[1, 2], [3]]):
        publisher.observe(output)
assert publisher.sent == 10 and publisher.dropped == 0, (publisher.sent, publisher.dropped)
PY
        until_metric nv_trt_llm_iterations_total 8 && until_metric nv_trt_llm_time_to_first_token_seconds_count 2 &&
            until_metric nv_llm_output_token_len_count 2 &&
            eventually on_page '^nv_trt_llm_requests_finished_total{.*reason="length".*} 2$' &&
            ! page | grep '^trtllm_exporter_records_rejected_total{.*} [1-9]'
    }
    local result=$?
    stop_sidecar
    return $result
}

over() { # over NUMBER METRIC: the metric must be larger than the number
    local value
    value=$(metric "$2")
    [ "${value:-0}" -gt "$1" ]
}
