"""A look-alike of the orchestrator of disaggregated serving that always works: its counts grow each second by those of the fixture,
except errors and retries, which stay."""

import http.server
import json
import re
import threading
import time

from exporter import ROOT

FIXTURE = ROOT / "tests/fixtures/prometheus_disaggregated_SHAPE_2026H2.txt"
WORKERS = {
    "current_workers": {"context_servers": ["10.0.0.1:8000"], "generation_servers": ["10.0.0.2:8000", "10.0.0.3:8000"]},
    "minimal_instances": {"context_servers": 1, "generation_servers": 1},
}


def page(seconds):
    def grown(found):
        stays = re.search("error|retry|exception", found[1])
        return f"{found[1]} {float(found[2]) * (1 if stays else 1 + int(seconds))}"

    return re.sub(r"(?m)^([^#\n].*) (\S+)$", grown, FIXTURE.read_text())


class Orchestrator(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.began = time.monotonic()
        self.source = f"trtllm-disagg:http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        answers = {
            "/prometheus/metrics": lambda: page(time.monotonic() - self.server.began),
            "/cluster_info": lambda: json.dumps(WORKERS),
            "/health": str,
            "/version": lambda: json.dumps({"version": "1.3.0"}),
        }
        answer = answers.get(self.path)
        body = (answer() if answer else "").encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass
