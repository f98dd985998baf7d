"""Opens a trace in Perfetto's viewer, in a real Chromium, and prints what the viewer read.

usage: trace_viewer.py PERFETTO TRACE   PERFETTO: the folder with the viewer's pages. TRACE: a file
Prints a JSON object: `lost` (problems of the import), `slices` and `counters` (numbers by process, track and name).
"""

import json
import sys
from http.server import SimpleHTTPRequestHandler

from exporter import serve
from webdriver import Browser

PERFETTO, TRACE = sys.argv[1:]

LOST = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
SLICES = """
  SELECT coalesce(process.name, of_requests.name, '?'), coalesce(thread.name, 'requests'), slice.name, count(*) FROM slice
  LEFT JOIN thread_track ON thread_track.id = slice.track_id LEFT JOIN thread USING (utid) LEFT JOIN process USING (upid)
  LEFT JOIN process_track ON process_track.id = slice.track_id LEFT JOIN process of_requests ON of_requests.upid = process_track.upid
  WHERE slice.dur >= 0 GROUP BY 1, 2, 3
"""
COUNTERS = """
  SELECT process.name, process_counter_track.name, count(*) FROM counter
  JOIN process_counter_track ON process_counter_track.id = counter.track_id JOIN process USING (upid) GROUP BY 1, 2
"""
QUERY = """
  const done = arguments[0];
  app.trace.engine.query(QUERY).then((result) => {
    const rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) {
      rows.push(result.columns().map((column) => typeof row.get(column) === 'bigint' ? Number(row.get(column)) : row.get(column)));
    }
    done(rows);
  }, (error) => done(String(error)));
"""


class Pages(SimpleHTTPRequestHandler):
    def translate_path(self, path):
        return TRACE if path == "/trace.json" else super().translate_path(path)

    def log_message(self, *_):
        pass


def query(browser, sql):
    rows = browser.run_async(QUERY.replace("QUERY", json.dumps(sql)))
    assert isinstance(rows, list), rows
    return rows


server = serve(lambda *arguments: Pages(*arguments, directory=PERFETTO))
address = f"http://127.0.0.1:{server.server_port}"
with Browser() as browser:
    browser.open(f"{address}/#!/?url={address}/trace.json")
    browser.until("return typeof app === 'object' && !!(app.trace && app.trace.engine)")
    tables = {"lost": LOST, "slices": SLICES, "counters": COUNTERS}
    print(json.dumps({name: query(browser, sql) for name, sql in tables.items()}))
