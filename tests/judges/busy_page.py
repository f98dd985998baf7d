"""Starts an exporter with a busy simulated engine, and writes its page when the page has all families about requests.

usage: busy_page.py EXPORTER FILE PROFILE     (PROFILE: default or full)
"""

import pathlib
import sys
import tempfile

from exporter import Exporter, fetch, until

# Histograms of requests appear when the first request has ended, and the verdict after several intervals of five seconds.
WANTED = [b'state="busy",version="1"} 1', b"nv_trt_llm_goodput_tokens_total", b"nv_trt_llm_limited_by_since_timestamp_seconds"]


def main():
    binary, file, profile = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        recorded = f"--record.dir={folder}/recording"
        with Exporter(binary, "--source=sim:", recorded, f"--metrics.profile={profile}", "--objectives=ttft=500ms,tpot=50ms,e2e=10s") as exporter:

            def page():
                text = fetch(f"{exporter.url}/metrics")
                return text if all(wanted in text for wanted in WANTED) else None

            pathlib.Path(file).write_bytes(until("a page with all families", page))


if __name__ == "__main__":
    main()
