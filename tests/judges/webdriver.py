"""A small WebDriver client: starts a headless Chromium and controls it with ChromeDriver over HTTP."""

import json
import subprocess
import time
import urllib.request


class Browser:
    def __init__(self, width=1280, height=900, dark=False):
        # ChromeDriver chooses a port that is free for IPv4. If the port is in use for IPv6, it exits, so try again.
        for _ in range(10):
            self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
            started = next((line for line in self.driver.stdout if "started successfully on port" in line), None)
            if started:
                break
            self.driver.wait()
        self.url = f"http://127.0.0.1:{started.rstrip().rstrip('.').split()[-1]}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}"]
        options = {"args": arguments + (["--force-dark-mode"] if dark else [])}
        # On a busy machine, a check of the whole page takes longer than ChromeDriver's default of half a minute.
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
                        "timeouts": {"script": 110_000}}
        session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{session['sessionId']}"
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        # A headless window is at least 500 pixels wide, so set the size of a narrow page in this way.
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def _call(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)["value"]

    def post(self, path, **body):
        return self._call("POST", self.session + path, body)

    def devtools(self, command, **parameters):
        return self.post("/goog/cdp/execute", cmd=command, params=parameters)

    def open(self, url):
        self.post("/url", url=url)

    def run(self, script, *arguments):
        """The return value of the script."""
        return self.post("/execute/sync", script=script, args=list(arguments))

    def run_async(self, script):
        """The value that the script passes to its callback, which is arguments[0]."""
        return self.post("/execute/async", script=script, args=[])

    def log(self):
        """The messages of the console since the last call."""
        return self.post("/se/log", type="browser")

    def press(self, key):
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.post("/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def until(self, script, *arguments, seconds=120):
        """Waits until the script returns a true value, and returns the value."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(script, *arguments)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{script!r} was never true; the page shows: {self.run('return document.body.innerText')}")
            time.sleep(0.2)
        return value

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait()
