#!/usr/bin/env python3
"""Compares the exporter's numbers with those of an engine in Dynamo's TensorRT-LLM worker. tests/dynamo.sh starts this script.

  dynamo_worker.py [--binary PATH] [--case NAME]...

Each case starts a worker and a frontend, sends requests over HTTP, and compares the engine's records with the exporter's page and
with the page of the worker. Exit code 1 if a number or a text differs from what docs/kubernetes.md promises.
"""
import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from exporter import ROOT, Exporter, Page, Program, fetch, until
from free_port import free_port

HERE = Path(__file__).resolve().parent / "dynamo"
LENGTHS = [9, 3, 30, 80, 80, 80]  # number of tokens of each answer
LAUNCHER = ["-m", "trtllm_exporter_publisher"]
SECOND_READER = [str(HERE / "second_reader.py")]


def get(url, body=None):
    return fetch(url, body and json.dumps(body).encode(), 60, {"Content-Type": "application/json"}).decode()


def model(folder):
    """Writes a model that a frontend can serve: a tokenizer of 64 words, and no weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    folder.mkdir()
    words = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, **{f"w{n}": n for n in range(2, 64)}}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    for name, content in {
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "</s>",
                                  "chat_template": "{{ messages[0].content }}"},
        "config.json": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 8,
            "intermediate_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1, "num_key_value_heads": 1,
            "max_position_embeddings": 2048, "eos_token_id": 1, "bos_token_id": 1},
        "generation_config.json": {"eos_token_id": 1, "bos_token_id": 1},
    }.items():
        (folder / name).write_text(json.dumps(content))


class Deployment:
    """A worker and a frontend of Dynamo, which discover each other through files."""

    def __init__(self, folder, launcher, flags, environment):
        self.folder, self.running = folder, contextlib.ExitStack()
        self.frontend, self.system = free_port(), free_port()
        self.socket = folder / "ingest.sock"
        model(folder / "llama")
        self.environment = {
            **os.environ, "HOME": str(folder), "PYTHONPATH": f"{HERE / 'standin'}:{ROOT / 'examples/python'}",
            "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "DYN_DISCOVERY_BACKEND": "file", "DYN_EVENT_PLANE": "zmq",
            "DYN_FILE_KV": str(folder / "discovery"), "STANDIN_RECORDS": str(folder / "records"),
            "TRTLLM_EXPORTER_SOCKET": str(self.socket), **environment}
        self.worker = [
            *launcher, "dynamo.trtllm", "--model-path", str(folder / "llama"), "--served-model-name", "org/llama",
            "--gpus-per-node", "1", *flags]

    def start(self):
        worker = self.run("worker", [sys.executable, *self.worker], DYN_SYSTEM_PORT=str(self.system))
        self.run("frontend", [sys.executable, "-m", "dynamo.frontend", "--http-port", str(self.frontend)])
        worker.until_ready(lambda: "org/llama" in get(f"http://127.0.0.1:{self.frontend}/v1/models"))

    def run(self, name, command, **environment):
        environment = {**self.environment, **environment}
        return self.running.enter_context(Program(command, self.folder / f"{name}.log", environment, self.folder))

    def exporter(self, binary, source):
        return self.running.enter_context(Exporter(binary, "--source", source))

    def ask(self):
        for length in LENGTHS:
            answer = get(f"http://127.0.0.1:{self.frontend}/v1/completions",
                         {"model": "org/llama", "prompt": "w3 w4 w5 w6 w7", "max_tokens": length})
            assert json.loads(answer)["usage"]["completion_tokens"] == length, answer

    def records(self, kind):
        lines = (self.folder / "records").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["kind"] == kind]


def sum_of(page, name, **labels):
    values = page.values(name, **labels)
    return sum(values) if values else None


def names_of_labels(page, name):
    return set(next(iter(page.labels(name)), ()))


class Case:
    def __init__(self, name, deployment, binary):
        self.name, self.deployment, self.binary, self.differences = name, deployment, binary, 0

    def equal(self, what, found, expected):
        same = found == expected or isinstance(found, float) and isinstance(expected, (int, float)) and abs(found - expected) < 1e-9
        self.differences += not same
        found, expected = (text if len(text) < 200 else f"{text[:90]} … {text[-90:]}" for text in map(str, (found, expected)))
        print(f"{'ok' if same else 'DIFFERS':7} {self.name}: {what}: {found}{'' if same else f', expected {expected}'}", flush=True)

    def served(self):
        """Starts all processes, sends the requests, and waits until a reader has received the engine's records."""
        self.exporter = self.deployment.exporter(self.binary, f"socket:{self.deployment.socket}")
        self.deployment.start()
        self.deployment.ask()
        time.sleep(1)  # both readers poll at least every 100 ms
        self.iterations, self.requests = self.deployment.records("iteration"), self.deployment.records("request")
        self.ours, self.theirs = self.exporter.page(), Page(get(f"http://127.0.0.1:{self.deployment.system}/metrics"))
        self.equal("requests that the engine finished", len(self.requests), len(LENGTHS))

    def taken(self, by=None):
        return [number for each in self.deployment.records("taken") if by in (None, each["by"]) for number in each["iters"]]

    def exporter_has_all(self):
        last, total = self.iterations[-1], lambda *path: sum(_at(record, path) for record in self.iterations)
        cache = last["kvCacheStats"]
        for name, labels, expected in (
            ("nv_trt_llm_iterations_total", {}, sum(LENGTHS)),
            ("nv_trt_llm_iterations_lost_total", {}, 0),
            ("nv_trt_llm_iterations_unreported_total", {}, 0),
            ("nv_trt_llm_requests_started_total", {}, total("numNewActiveRequests")),
            ("nv_trt_llm_requests_completed_total", {}, total("numCompletedRequests")),
            ("nv_trt_llm_context_tokens_total", {}, sum(request["prompt"] for request in self.requests)),
            ("nv_trt_llm_generation_tokens_total", {}, total("inflightBatchingStats", "numGenRequests")),
            ("nv_trt_llm_kv_cache_blocks_missed_total", {}, cache["missedBlocks"]),
            ("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": "used"}, cache["usedNumBlocks"]),
            ("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": "max"}, cache["maxNumBlocks"]),
            ("nv_trt_llm_general_metrics", {"general_type": "iteration_counter"}, last["iter"]),
            ("nv_trt_llm_engine_config_info", {"model": "llama", "max_batch_size": "8", "tensor_parallel_size": "1"}, 1),
        ):
            self.equal(name + str(labels or ""), sum_of(self.ours, name, **labels), float(expected))

    def exporter_has_requests(self, times):
        count = float(len(LENGTHS))
        self.equal("finished requests", sum_of(self.ours, "nv_trt_llm_requests_finished_total", reason="length"), count)
        for name in ("e2e_request_latency", "time_to_first_token"):
            self.equal(name, sum_of(self.ours, f"nv_trt_llm_{name}_seconds_count"), count if times else 0.0)

    def dynamo_has_all(self):
        cache = self.iterations[-1]["kvCacheStats"]
        usage = cache["usedNumBlocks"] / cache["maxNumBlocks"]
        self.equal("records that Dynamo took", self.taken("get_stats_async"), [each["iter"] for each in self.iterations])
        self.equal("its gpu_cache_usage_percent", sum_of(self.theirs, "dynamo_component_gpu_cache_usage_percent"), usage)
        self.equal("its total_blocks", sum_of(self.theirs, "dynamo_component_total_blocks"), float(cache["maxNumBlocks"]))

    def dynamo_has_metrics(self):
        count = float(len(LENGTHS))
        self.equal("its completed requests", sum_of(self.theirs, "trtllm_num_requests_completed_total"), count)
        self.equal("its successful requests", sum_of(self.theirs, "trtllm_request_success_total", finished_reason="length"), count)
        self.equal("labels of its trtllm_* names", names_of_labels(self.theirs, "trtllm_num_requests_completed_total"), {
            "model", "model_name", "engine_type", "worker_id", "dynamo_namespace", "dynamo_component", "dynamo_endpoint"})


def _at(record, path):
    for key in path:
        record = record[key]
    return record


def copies(case):
    """Follows docs/kubernetes.md: --publish-metrics is set, and the Python package starts the worker."""
    case.served()
    case.exporter_has_all()
    case.exporter_has_requests(times=True)
    case.dynamo_has_all()
    case.dynamo_has_metrics()


def old_flag(case):
    """Uses the name of the flag that is deprecated in Dynamo 1.6 and is the only name in older releases."""
    copies(case)


def planner(case):
    """With DYN_FORWARDPASS_METRIC_PORT, the worker also reads the statistics, but publishes no metrics of the
    requests."""
    case.served()
    case.exporter_has_all()
    case.exporter_has_requests(times=False)
    case.dynamo_has_all()
    case.equal("its trtllm_* names", names_of_labels(case.theirs, "trtllm_num_requests_completed_total"), set())


def unread(case):
    """With only --publish-kv-events, the engine records nothing and nobody reads it, so the exporter gets only requests."""
    case.served()
    case.equal("records of the engine", (len(case.iterations), case.taken()), (0, []))
    case.equal("iterations", sum_of(case.ours, "nv_trt_llm_iterations_total"), 0.0)
    case.exporter_has_requests(times=False)


def alone(case):
    """Without --publish-metrics, the Python package reads the engine."""
    case.served()
    case.exporter_has_all()
    case.equal("records that Dynamo took", case.taken("get_stats_async"), [])


def stolen(case):
    """The mistake that the documentation warns about: the package reads an engine that Dynamo also reads."""
    case.served()
    ours, theirs = case.taken("get_stats"), case.taken("get_stats_async")
    case.equal("records of both readers together", sorted(ours + theirs), [each["iter"] for each in case.iterations])
    case.equal("iterations of the exporter", sum_of(case.ours, "nv_trt_llm_iterations_total"), float(len(ours)))
    case.equal("both readers miss some", 0 < len(ours) < len(case.iterations), True)


def pages(case):
    """The exporter polls the ports of Dynamo. It must find nothing to read, report that, and remove no records."""
    deployment, log = case.deployment, lambda exporter: exporter.log().replace("\\", "")
    case.served()
    system, frontend = (f"http://127.0.0.1:{port}" for port in (deployment.system, deployment.frontend))
    direct = deployment.exporter(case.binary, f"trtllm-serve:{system}")
    auto = deployment.exporter(case.binary, f"auto:?ports={deployment.frontend},{deployment.system}")
    until("a log line that names the page for Prometheus", lambda: "is a page for Prometheus" in log(direct), 20)
    until("auto: a request to both ports", lambda: f"address={system}" in log(auto) and f"address={frontend}" in log(auto), 20)
    case.equal("auto: the frontend", 'no trtllm-serve: its models are owned by "nvidia"' in log(auto), True)
    case.equal("auto: the worker", "/v1/models answered with status 404" in log(auto), True)
    case.equal("auto: engines", sum_of(auto.page(), "nv_trt_llm_iterations_total"), None)
    deployment.ask()
    time.sleep(1)
    case.equal("records that Dynamo took", case.taken("get_stats_async"), list(range(1, 2 * sum(LENGTHS) + 1)))


STATISTICS = ["--override-engine-args", '{"enable_iter_perf_stats": true}']
CASES = {  # function: how the worker is started, its flags, and its environment
    copies: (LAUNCHER, ["--publish-metrics"], {}),
    old_flag: (LAUNCHER, ["--publish-events-and-metrics"], {}),
    planner: (LAUNCHER, [], {"DYN_FORWARDPASS_METRIC_PORT": "20380"}),
    unread: (LAUNCHER, ["--publish-kv-events"], {}),
    alone: (SECOND_READER, STATISTICS, {}),
    stolen: (SECOND_READER, ["--publish-metrics"], {}),
    pages: (["-m"], ["--publish-metrics"], {}),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(ROOT / "target/debug/trtllm-exporter"))
    parser.add_argument("--case", action="append", choices=[function.__name__ for function in CASES], help="default: all")
    options = parser.parse_args()
    differences = 0
    for function, (launcher, flags, environment) in CASES.items():
        if options.case and function.__name__ not in options.case:
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            deployment = Deployment(Path(folder), launcher, flags, environment)
            case, failed = Case(function.__name__, deployment, str(Path(options.binary).resolve())), True
            try:
                function(case)
                failed = case.differences > 0
            finally:
                deployment.running.close()
                if failed:
                    for log in sorted(Path(folder).glob("*.log")):
                        print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-15:], sep="\n", file=sys.stderr)
            differences += case.differences
    print(f"{differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
