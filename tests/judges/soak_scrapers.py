"""The scrapers of the soak test: threads that each read the page in one format, and check that it is complete."""

import gzip
import http.client
import threading

from exporter import PROTOBUF

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
# Accept and Accept-Encoding of each scraper. The checks at the end also use the first pair.
FORMATS = [
    ("text/plain", "identity"),
    ("text/plain", "gzip"),
    (OPENMETRICS, "identity"),
    (OPENMETRICS, "gzip"),
    (PROTOBUF, "identity"),
    (PROTOBUF, "zstd"),
]


def scrape(address, form, connection=None):
    """Returns the content type and the body. The body is decompressed if the standard library can do it."""
    connection = connection or http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", "/metrics", headers={"Accept": form[0], "Accept-Encoding": form[1]})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise OSError(f"status {response.status}")
    if response.getheader("content-encoding", "identity") != form[1]:
        raise OSError(f"{form[1]} is not used")
    return response.getheader("content-type"), gzip.decompress(body) if form[1] == "gzip" else body


class Scraper(threading.Thread):
    """Half of the scrapers keep their connection. The others open a new connection for each scrape."""

    def __init__(self, address, number, stop):
        super().__init__(daemon=True)
        self.address, self.form, self.stop = address, FORMATS[number % len(FORMATS)], stop
        self.scrapes, self.failures = 0, []
        self.keep = number % 2 == 0

    def run(self):
        connection = http.client.HTTPConnection(self.address, timeout=30)
        while not self.stop.wait(0.25):
            try:
                kind, body = scrape(self.address, self.form, connection)
                complete = body.endswith(b"# EOF\n") if "openmetrics" in kind else len(body) > 1000
                if kind.split(";")[0] != self.form[0].split(";")[0] or not complete:
                    self.failures.append(f"{self.form}: {kind}, {len(body)} bytes")
                self.scrapes += 1
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{self.form}: {error!r}")
                connection.close()
            if not self.keep:
                connection.close()
