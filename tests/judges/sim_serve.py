"""Runs a simulated trtllm-serve (crates/sim-serve) as a process."""

import json
import os
import subprocess

from exporter import ROOT, Program, fetch


def built():
    """The path of the program. Builds the program unless SIM_SERVE names it."""
    if path := os.environ.get("SIM_SERVE"):
        return path
    subprocess.run(["cargo", "build", "--quiet", "--workspace", "--bin", "trtllm-sim-serve"], cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    return os.path.join(target, "debug", "trtllm-sim-serve")


def usual(**changes):
    """The options of an engine with speculative decoding, a host cache and prompts with long common prefixes."""
    options = {"rate": 7, "wave": 0, "prompt_mean": 1000, "output_mean": 250, "prefix_share": 0.85, "prefix_tokens": 850, "in_flight": 128}
    options |= {"kv_blocks": 1600, "host_blocks": 800, "max_num_tokens": 4096, "spec_draft_len": 3, "spec_acceptance": 0.75}
    return "sim:?" + "&".join(f"{key}={value}" for key, value in (options | changes).items())


class SimServe(Program):
    """A running simulated server, on a free port unless `port` is given. `engine` is the `--source` of a simulated engine."""

    def __init__(self, engine, *arguments, port=0):
        command = [built(), engine, f"--port={port}", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = f"http://{self.process.stdout.readline().removeprefix('listening on ').strip()}"

    @classmethod
    def publishing(cls, path, model, version="1", **changes):
        """An engine that publishes to the socket of an exporter. `changes` are changes to the usual options."""
        return cls(usual(**changes), f"--socket={path}", f"--model={model}", f"--model-version={version}")

    def truth(self):
        return json.loads(fetch(f"{self.url}/truth"))

    def control(self, **command):
        """Sends a command. Returns the engine's own counts after it (`/truth`)."""
        return json.loads(fetch(f"{self.url}/control", json.dumps(command).encode()))

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
