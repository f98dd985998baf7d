//! `tests/upstream/drift` lists names in a checkout of TensorRT-LLM that the exporter does not know. This test invents
//! a checkout that contains each kind of name in every form in which TensorRT-LLM may write it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use trtllm_page::metrics::catalog::CATALOG;
use trtllm_records::fields;
use trtllm_records::statistics::NOT_READ;

use crate::support;

/// The files of the invented checkout. They contain names that the exporter reads, names that it ignores for a reason,
/// and at least one new name of each kind.
const FILES: &[(&str, &str)] = &[
    (
        "serve/openai_server.py",
        r#"
class Server:
    def register(self):
        self.app.add_api_route("/metrics", self.stats, methods=["GET"])
        self.app.add_api_route("/v1/chat/completions", self.chat, methods=["POST"])
        self.app.add_api_route("/new_statistics", self.new, methods=["GET", "POST"])
        self.app.routes.append(Mount("/prometheus/metrics", page))
        self.client.get("/not_a_route")
"#,
    ),
    (
        "serve/openai_disagg_server.py",
        r#"
from fastapi import APIRouter
router = APIRouter(prefix="/orchestrator")
@router.get("/workers")
async def workers(): ...
for path, method in (("/set", "POST"), ("/by_loop", "GET")):
    app.add_api_route(path, proxy, methods=[method])
"#,
    ),
    ("serve/coordinator_server.py", "def of(app):\n    app.add_api_route('/select', select, methods=['POST'])\n"),
    // The tool's list of files with routes does not contain this file.
    (
        "serve/added_later.py",
        "from fastapi import FastAPI\n@app.post('/kv_cache_events')\n@app.post('/moved')\ndef f(): ...\n",
    ),
    (
        "metrics/collector.py",
        r#"
class Collector:
    def __init__(self):
        from prometheus_client import Counter, Gauge
        self.prefix = "trtllm_"
        self.known = Counter(name=self.prefix + "prompt_tokens", documentation="")
        self.new = Gauge(self.prefix +
                         "rate_of_drift", "")
        for name, help in (("num_requests_running", ""), ("num_requests_drifting", "")):
            self.more = Gauge(f"{self.prefix}{name}", help)
        self.health = Health(self.prefix)
class Health:
    def __init__(self, prefix: str):
        self._prefix = prefix
    def collect(self):
        from prometheus_client.core import GaugeMetricFamily
        return [GaugeMetricFamily(self._prefix + "drift_health", "")]
"#,
    ),
    (
        "metrics/batch_metrics.py",
        "from prometheus_client import Gauge\nfrom collections import Counter\nNAME = 'trtllm_scheduled_batch_size'\n\
         size = Gauge(NAME, '')\nletters = Counter('no family')\n",
    ),
    (
        "serve/perf_metrics.py",
        r#"
from prometheus_client import Counter
NAMES = [("trtllm_kv_cache_hit_rate", "known"), ("drifted_requests", "new")]
DEFINITIONS = [MetricsDefinition(name, text) for name, text in NAMES]
def instance(name):
    return Counter(name, "")
"#,
    ),
    (
        "executor/iteration_stats.py",
        r#"
class BatchSnapshot:
    num_ctx_tokens: int = 0
    num_drift_tokens: int = 0
class Frame:
    internal: int = 0
    scheduler_mode: str = "non_overlap"
def report(frame, snapshot):
    base = {"iter": snapshot.iter, "driftStats": {"iterDrift": 1}, "Class": 2}
    base["statsSequence"] = frame.sequence
    for key, value in (("hostStepTimeMS", 1), ("driftTimeMS", 2)):
        base[key] = value
    base.update(numGenRequests=1, numDriftRequests=2)
    if snapshot.stage not in ("QUEUED", "DRIFTING"):
        base["stage"] = "GENERATION_COMPLETE"
"#,
    ),
    (
        "executor/base_worker.py",
        "class W:\n    def _stats_serializer(stats):\n        stats['attentionDpRank'] = 0\n    def f(d):\n        d['other'] = 1\n",
    ),
    (
        "executor/result.py",
        "class Output:\n    finish_reason: Optional[Literal['stop', 'drift']] = None\ndef f(out):\n    out.finish_reason = 'evicted'\n",
    ),
    // The tool's list does not contain this file. Therefore, the tool looks only for keys in the style of records.
    ("executor/observer.py", "FIELD = 'kvDriftEvents'\ndef f():\n    return {FIELD: 1, 'python_style': 2}\n"),
    (
        "_torch/pyexecutor/kv_cache_stats.py",
        "class S:\n    kind: Literal['ssm', 'linear'] = 'ssm'\nrow = {'slotSize': 1, 'poolDrift': 2}\n",
    ),
    (
        "_torch/pyexecutor/perf_metrics_manager.py",
        "import os\nstep = {'token_time': 1}\nstep['drift_time'] = 2\npath = os.getenv('TRTLLM_DRIFT_EVENTS_PATH')\n",
    ),
    (
        "serve/_perf_metrics_schema.py",
        "class Line(TypedDict):\n    request_id: int\n    status: str\n    drift_id: NotRequired[int]\n",
    ),
    ("metrics/enums.py", "class Names(Enum):\n    ARRIVAL = 'arrival_time'\n    DRIFT = 'drift_seconds'\n"),
    (
        "llmapi/llm_args.py",
        r#"
class CapacitySchedulerPolicy(StrEnum):
    MAX_UTILIZATION = "MAX_UTILIZATION"
    DRIFT_ALONG = "DRIFT_ALONG"
class Args:
    model: str
    enable_iter_perf_stats: bool = False
    enable_drift_stats: bool = False
class DriftMetricsConfig:
    window: int = 1
"#,
    ),
    ("llmapi/disagg_utils.py", "class Config:\n    port: int = 1\n    perf_metrics_output_dir: str = ''\n"),
    ("commands/serve.py", "@click.option('-d', '--drift-metrics-dir')\n@click.option('--port')\ndef serve(): ...\n"),
];

const FOUND: &str = "\
tensorrt_llm/serve/openai_server.py:6: route GET /new_statistics
tensorrt_llm/serve/openai_server.py:6: route POST /new_statistics
tensorrt_llm/serve/openai_disagg_server.py:7: route * /by_loop
tensorrt_llm/serve/openai_disagg_server.py:4: route GET /orchestrator/workers
tensorrt_llm/metrics/collector.py:7: family trtllm_rate_of_drift
tensorrt_llm/metrics/collector.py:10: family trtllm_num_requests_drifting
tensorrt_llm/metrics/collector.py:17: family trtllm_drift_health
tensorrt_llm/serve/perf_metrics.py:4: family drifted_requests
tensorrt_llm/executor/iteration_stats.py:4: key num_drift_tokens
tensorrt_llm/executor/iteration_stats.py:9: key driftStats
tensorrt_llm/executor/iteration_stats.py:12: key driftTimeMS
tensorrt_llm/executor/iteration_stats.py:13: key numDriftRequests
tensorrt_llm/executor/iteration_stats.py:9: key iterDrift
tensorrt_llm/_torch/pyexecutor/kv_cache_stats.py:3: key poolDrift
tensorrt_llm/_torch/pyexecutor/perf_metrics_manager.py:3: key drift_time
tensorrt_llm/serve/_perf_metrics_schema.py:4: key drift_id
tensorrt_llm/metrics/enums.py:3: key drift_seconds
tensorrt_llm/executor/result.py:2: value drift
tensorrt_llm/executor/result.py:4: value evicted
tensorrt_llm/executor/iteration_stats.py:14: value DRIFTING
tensorrt_llm/_torch/pyexecutor/kv_cache_stats.py:2: value linear
tensorrt_llm/llmapi/llm_args.py:8: option enable_drift_stats
tensorrt_llm/llmapi/llm_args.py:10: option window
tensorrt_llm/llmapi/llm_args.py:4: policy DRIFT_ALONG
tensorrt_llm/serve/added_later.py:3: route POST /moved
tensorrt_llm/executor/observer.py:3: key kvDriftEvents
tensorrt_llm/commands/serve.py:1: option drift_metrics_dir
tensorrt_llm/_torch/pyexecutor/perf_metrics_manager.py:4: option TRTLLM_DRIFT_EVENTS_PATH
";

/// Exit code, standard output and standard error.
fn drift(argument: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(support::python());
    let output = command.arg(support::root().join("tests/upstream/drift")).arg(argument).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The invented checkout. `change` renames or removes one file.
fn checkout(change: Option<(&str, Option<&str>)>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        let name = match change {
            Some((file, to)) if file == *name => to,
            _ => Some(*name),
        };
        let Some(name) = name else { continue };
        let path = directory.path().join("tensorrt_llm").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    directory
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn each_new_name_is_listed_once_with_its_place() {
    let (code, found, errors) = drift(checkout(None).path());
    assert_eq!((sorted(&found), errors.as_str()), (sorted(FOUND), ""));
    assert_eq!(code, Some(1));
}

#[test]
fn a_file_that_has_moved_is_reported() {
    let to = "serve/http/server.py";
    let (code, found, _) = drift(checkout(Some(("serve/openai_server.py", Some(to)))).path());
    let expected = FOUND.replace("serve/openai_server.py", to)
        + "tensorrt_llm/serve/openai_server.py: the file is missing; find its names, and correct PLACES in tests/upstream/drift\n";
    // The tool finds the routes in the moved file, too, because it searches every file that defines routes.
    assert_eq!(sorted(&found), sorted(&expected));
    assert_eq!(code, Some(1));
    let (code, found, _) = drift(checkout(Some(("executor/iteration_stats.py", None))).path());
    assert_eq!(found.matches("executor/iteration_stats.py: the file is missing").count(), 1, "{found}");
    assert_eq!(code, Some(1));
}

#[test]
fn a_file_without_names_is_reported() {
    let directory = checkout(None);
    std::fs::write(directory.path().join("tensorrt_llm/_torch/pyexecutor/kv_cache_stats.py"), "class Renamed: ...\n")
        .unwrap();
    let (code, found, _) = drift(directory.path());
    assert!(found.contains("tensorrt_llm/_torch/pyexecutor/kv_cache_stats.py: no key any more; "), "{found}");
    assert!(found.contains("tensorrt_llm/_torch/pyexecutor/kv_cache_stats.py: no value any more; "), "{found}");
    assert_eq!(code, Some(1));
}

#[test]
fn what_cannot_be_read_ends_with_exit_code_2() {
    let directory = checkout(None);
    let (code, found, errors) = drift(&directory.path().join("serve"));
    assert!(errors.ends_with("serve has no folder tensorrt_llm; give a checkout of TensorRT-LLM\n"), "{errors}");
    assert_eq!((code, found.as_str()), (Some(2), ""));
    std::fs::write(directory.path().join("tensorrt_llm/_torch/pyexecutor/kv_cache_stats.py"), "class (").unwrap();
    let (code, found, errors) = drift(directory.path());
    assert!(errors.starts_with("tensorrt_llm/_torch/pyexecutor/kv_cache_stats.py: invalid syntax"), "{errors}");
    assert_eq!((code, found.as_str()), (Some(2), ""));
}

#[test]
fn the_names_read_from_the_source_are_those_of_the_exporter() {
    let (code, text, errors) = drift(Path::new("--known"));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let known: BTreeSet<(&str, &str)> = text.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let left_out = NOT_READ.iter().filter_map(|(key, _)| key.split(' ').next());
    let keys = fields().map(|field| field.key).chain(left_out).map(|key| ("key", key));
    let of_trtllm = |name: &&str| name.starts_with("trtllm_") && !name.starts_with("trtllm_exporter_");
    let families = CATALOG.iter().map(|metric| metric.name).filter(of_trtllm).map(|name| ("family", name));
    let others = [
        ("route", "GET /metrics"),
        ("key", "token_time"),
        ("value", "cancelled"),
        ("value", "non_overlap"),
        ("value", "GENERATION_COMPLETE"),
        ("family", "trtllm_request_success_total"),
        ("family", "trtllm_prefill_perplexity"),
    ];
    let all = keys.chain(families).chain(others);
    let missing: Vec<_> = all.filter(|name| !known.contains(name)).collect();
    assert!(missing.is_empty(), "tests/upstream/ours.py does not find {missing:?}");
}
