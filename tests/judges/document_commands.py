"""Runs the commands of the documents, as a reader would. Fails if a command ends with an error or prints one.

usage: document_commands.py EXPORTER [DOCUMENT...]      as root, in the root of the repository; trtllm-doctor is beside EXPORTER

The commands of a document run one after the other in one shell. Each document has a machine of its own, made of namespaces: it has the
documented ports and host names, and whatever it writes in /etc, /usr, /var and the repository disappears. It has no network.
What cannot run there is in INSTEAD. All other commands run, so a new one that cannot run fails.
A server of the exporter runs in the background. It must serve its page, with all of its sources up.
Prints a line per document, and the commands that did not run with the reason. Exit code 1 if there is a finding.
"""

import os
import re
import subprocess
import sys
import tempfile

from command_lines import FENCE, INLINE, shell_blocks
from exporter import ROOT, conclude
from sim_serve import built

SYSTEMD, BUILT = "needs a booted systemd", "the given programs are such a build"
# A regular expression of the command, what runs instead (None: nothing), the reason, and the check that runs the command if nothing does.
INSTEAD = [
    (r"systemctl reload (prometheus\S*)", r'kill -HUP "$(cat /run/\1.pid)"', SYSTEMD, None),
    (r"systemctl (restart|status|stop|start|enable|daemon-reload)\b[^&\n]*", None, SYSTEMD, ".ci/full deploy-systemd"),
    (r"git clone https://github\.com/\S+ && ", f"git clone --quiet {ROOT} trtllm-exporter && ", "no network", None),
    (r"cargo run --release -- ", "trtllm-exporter ", BUILT, None),
    (r"cargo run --release -p trtllm-doctor -- ", "trtllm-doctor ", BUILT, None),
    (r"cargo build\b.*", None, "builds the workspace", ".ci/run"),
    (r"cargo bench --bench core", None, "builds the workspace", ".ci/full core"),
    (r"tests/run\b.*|\.ci/run\b.*", None, "runs all tests", ".ci/run"),
    (r"tests/msrv\.sh.*", None, "builds the workspace", ".ci/full msrv"),
    (r"\.ci/full (?=\w)([\w-]+).*", None, "is a check itself", r".ci/full \1"),
    (r"docker build .*", None, "needs Docker and a registry", ".ci/full deploy-image-source"),
    (r"rollout status ", "rollout status --watch=false ", "the cluster is an API server without nodes", None),
    (r"YOUR-REGISTRY", "registry.example", "a placeholder", None),
    (r"python3 -m trtllm_exporter_publisher .*", None, "needs Dynamo", ".ci/full dynamo"),
    (r"trtllm-bench .*", None, "needs a GPU; a test reads its reports", "tests/it/bench_report.rs"),
    (r"apt install dpkg-dev .*", None, "needs a network", ".github/workflows/release.yml"),
    (r"(echo 'deb|helm install .*HOST:8080).*", None, "needs a network", ".ci/full release-dry-run"),
    (r"deploy/release/build\.sh .*|.*dpkg-scanpackages .*|.*registry\.yml.*|.*image\.sh .*|python3 -m http\.server .*", None, "builds a release", ".ci/full release-dry-run"),
    (r"cmake -S .*|export PKG_CONFIG_PATH=PREFIX.*|g\+\+ .*|cpp-bridge/preload/build\.sh .*|LD_PRELOAD=.*", None, "needs a TensorRT-LLM, which that check simulates", ".ci/full hosts"),
    (r"(install\.sh) PREFIX", r"\1 prefix", "a placeholder", None),
    (r"cargo run --example server .*|curl --cacert .*", None, "needs a build and certificates", "crates/web-config/tests"),
    (r"trtllm-doctor (what-if|compare|export)$", None, "is only the name of a command", ".ci/run"),
    (r"trtllm-doctor compare A B", "trtllm-doctor compare recording@-2h recording", "placeholders", None),
    (r"trtllm-doctor export DIR", "trtllm-doctor export recording >/dev/null", "a placeholder", None),
    (r"diagnose URL", "diagnose http://gpu-node-1:8002", "a placeholder", None),
    (r"--log FILE", "--log tests/fixtures/iteration_log_executor.log", "a placeholder", None),
    (r"init FILE", "init new.yaml", "a placeholder", None),
    (r"check-config FILE", "check-config examples/config.yaml", "a placeholder", None),
]
BUSY = "trtllm-exporter --source 'sim:?rate=5&wave=0&kv_blocks=2048' --gpu off; "
# What a document takes for granted.
BEFORE = {
    "docs/doctor.md": BUSY + "prometheus; kill -HUP $(cat /run/prometheus.pid); sleep 20",
    "docs/embedding.md": "mkdir /run/trtllm-exporter",
    "docs/embedding-python.md": "mkdir /run/trtllm-exporter",
    "docs/install.md": "trtllm-exporter; release_tarball",
    "docs/kubernetes.md": "api_server",
    "docs/monitoring.md": "trtllm-exporter; prometheus",
    "docs/recordings.md": "serve 8000; recordings 2026-11-26T19:38:45Z -2h +0",
    "docs/sources.md": "serve 8000; mkdir /run/lines; cp tests/fixtures/trtllm_bench_report.json report.json",
    "docs/runbooks/exporter.md": BUSY,
    "docs/runbooks/engine.md": BUSY,
    "docs/runbooks/limits.md": BUSY,
    "docs/verdict.md": BUSY,
    "examples/python/README.md": "mkdir /run/trtllm-exporter",
    "docs/what-if.md": BUSY + "recordings 2026-11-27T03:26:00Z 2026-11-27T03:34:00Z -2h -10m +0",
}
# What the output of a document's commands contains.
PRINTED = {
    "README.md": "engines: 1",
    "docs/doctor.md": "engine tensorrt_llm 1",
    "docs/install.md": "# HELP",
    "docs/monitoring.md": "=> 1 @",
    "docs/recordings.md": "time of equal work",
    "docs/what-if.md": "max_batch_size=32",
}
ERROR = re.compile(r"(?im)^.*(?:\berror\b|not found|no such file|cannot |denied|failed|exit code).*$")


def blocks_of(text):
    """The shell blocks of a document, and the commands in its sentences as the last block."""
    yield from shell_blocks(text)
    yield "\n".join(dict.fromkeys(INLINE.findall(FENCE.sub("", text))))


def prepared(path, block, used):
    """The block as it runs here, and the commands that do not run: command, reason, check."""
    block, left = re.sub(r"(?m)\s+# .*$", "", block).replace("\\\n", " "), []
    for number, (pattern, instead, reason, check) in enumerate(INSTEAD):
        def replace(match):
            used.add(number)
            if instead is not None:
                return match.expand(instead)
            left.append((path, match[0].strip(), reason, match.expand(check)))
            return "true"
        block = re.sub(rf"(?m)(?<![\w-]){pattern}", replace, block)
    return block, left


def run(path, blocks, exporter, sim_serve):
    """Runs the blocks on a machine of their own. Yields the findings."""
    lines = [f"exporter={exporter} sim_serve={sim_serve} root={ROOT}", f"source {ROOT}/tests/judges/document_machine.sh", BEFORE.get(path, "")]
    for number, block in enumerate(blocks, 1):
        lines += [f"echo '== block {number}' | tee /dev/stderr", block]
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write("\n".join(lines))
        script.flush()
        apart = ["timeout", "--signal=KILL", "900", "unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        ran = subprocess.run([*apart, "bash", script.name], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    for part in re.split(r"(?m)^== ", ran.stderr):
        for error in ERROR.findall(part):
            yield f"{path}: {part.splitlines()[0]}: {error.strip()}"
    if ran.returncode:
        yield f"{path}: exit code {ran.returncode}, after:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"
    elif PRINTED.get(path, "") not in ran.stdout:
        yield f"{path}: {PRINTED[path]!r} is not in:\n{ran.stdout[-2000:]}"


def main():
    exporter, *chosen = sys.argv[1:]
    exporter, sim_serve = os.path.abspath(exporter), os.path.abspath(built())
    # Old entries of the changelog name commands that are gone.
    paths = subprocess.run(["git", "ls-files", "*.md", ":!CHANGELOG.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    findings, used, elsewhere, count = [], set(), [], 0
    for path in paths:
        blocks = []
        for block in blocks_of((ROOT / path).read_text()):
            block, left = prepared(path, block, used)
            elsewhere += left
            blocks.append(block)
        commands = [line for block in blocks for line in block.splitlines() if re.sub(r"\btrue\b|[&;\s]", "", line)]
        if commands and (not chosen or path in chosen):
            found = list(run(path, blocks, exporter, sim_serve))
            print(f"{'FAIL' if found else 'ok  '}  {path}: {len(commands)} commands", flush=True)
            findings, count = findings + found, count + len(commands)
    for path, command, reason, check in elsewhere:
        print(f"not run here: {path}: {command}: {reason}; {check}")
        if not (ROOT / check.replace(".ci/full ", ".ci/steps/")).exists():
            findings.append(f"{path}: {command}: there is no {check}")
    findings += [f"no document has a command for {INSTEAD[number][0]}" for number in range(len(INSTEAD)) if number not in used]
    conclude(findings, f"{count} commands ran, {len(elsewhere)} are run by other checks")


if __name__ == "__main__":
    main()
