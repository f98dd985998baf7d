"""Judges `--source kubernetes:` with a real API server: pods are objects without nodes whose servers run on this machine, each on its own
address 127.0.0.x. Prints how long the exporter took to notice each change.

usage: kubernetes_source.py EXPORTER PORT WORK     WORK: the folder of tests/deploy/start_api_server.sh
"""

import base64
import contextlib
import json
import pathlib
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from exporter import Exporter, fetch, until
from sim_serve import SimServe, usual

NAMESPACE, ACCOUNT, NODE = "team-a", "exporter", "gpu-1"
SERVING_PORT = 18000
ISSUER = "https://test"


class Api:
    """The API server, as its administrator."""

    def __init__(self, port):
        self.url = f"https://127.0.0.1:{port}"
        self.context = ssl._create_unverified_context()

    def call(self, method, path, body=None, kind="application/json", token="token"):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body is not None else None, method=method)
        request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", kind)
        with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
            return json.loads(answer.read())

    def set_status(self, name, **status):
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"
        self.call("PATCH", path, {"status": status}, "application/merge-patch+json")

    def delete(self, name):
        self.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", {"gracePeriodSeconds": 0})

    def allow(self, verbs):
        """Replaces the rights of the exporter's account."""
        role = {"metadata": {"name": "exporter"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]}
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles"
        with contextlib.suppress(urllib.error.HTTPError):
            return self.call("POST", path, role)
        return self.call("PUT", f"{path}/exporter", role)


class Proxy:
    """Forwards connections to the API server, until they are cut."""

    def __init__(self, port):
        self.to, self.is_up, self.open = port, True, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            if not self.is_up:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.to))
            self.open += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    @staticmethod
    def copy(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def cut(self):
        for end in self.open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.open.clear()


class Pods:
    """The pods, and the servers in them."""

    def __init__(self, api):
        self.api, self.servers = api, {}

    def create(self, name, node=NODE, containers=()):
        """Creates a pod that has no address yet."""
        server = {"name": "server", "image": "models:1", "command": ["sh", "-c", f"exec trtllm-serve serve /models/llama --port {SERVING_PORT}"]}
        pod = {"metadata": {"name": name, "labels": {"app": "llama"}}, "spec": {"nodeName": node, "containers": [server, *containers]}}
        self.api.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
        self.api.set_status(name, phase="Pending", containerStatuses=[status(state={"waiting": {"reason": "ContainerCreating"}})])

    def run(self, name, address):
        """Starts the server, and gives the pod its address."""
        self.start(name, address)
        self.api.set_status(name, phase="Running", podIP=address, podIPs=[{"ip": address}], containerStatuses=[running()])

    def start(self, name, address):
        self.servers[name] = SimServe(usual(), "--host", address, "--model", "llama", port=SERVING_PORT)

    def stop(self):
        for server in self.servers.values():
            server.stop()


def status(ready=False, **changes):
    return {"name": "server", "image": "models:1", "imageID": "", "ready": ready, "started": ready, "restartCount": 0} | changes


def running(ready=True, **changes):
    return status(ready, state={"running": {"startedAt": "2026-01-01T00:00:00Z"}}, **changes)


def ended(reason, code):
    return {"terminated": {"reason": reason, "exitCode": code}}


def token(work, uid, seconds):
    """A token of the exporter's account, signed with the key of the API server, as it would issue one."""
    encoded = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")  # noqa: E731
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": [ISSUER], "sub": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", "iat": now - 3600, "nbf": now - 3600}
    claims |= {"exp": now + seconds, "kubernetes.io": {"namespace": NAMESPACE, "serviceaccount": {"name": ACCOUNT, "uid": uid}}}
    text = encoded(json.dumps({"alg": "RS256"}).encode()) + b"." + encoded(json.dumps(claims).encode())
    command = ["openssl", "dgst", "-sha256", "-sign", str(work / "sa.key")]
    return (text + b"." + encoded(subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True).stdout)).decode()


class Judge:
    def __init__(self, exporter):
        self.exporter, self.failed = exporter, []

    def counted(self, pod):
        values = self.exporter.page().values("nv_trt_llm_iterations_total", pod=pod, namespace=NAMESPACE, node=NODE)
        return values[0] if values else None

    def grows(self, pod, before=0.0):
        return lambda: (self.counted(pod) or 0) > before + 5

    def gone(self, pod):
        return lambda: self.counted(pod) is None

    def found(self, pod, *words):
        """Whether discovery says these words of a pod."""

        def attempt():
            found = [entry for entry in json.loads(fetch(f"{self.exporter.url}/api/v1/discovery")) if pod in entry["address"]]
            return any(all(word in entry["finding"] for word in words) for entry in found)

        return attempt

    def verdict(self, *words):
        def attempt():
            engines = json.loads(fetch(f"{self.exporter.url}/api/v1/engines"))
            verdicts = [engine["verdict"] for engine in engines if engine.get("verdict")]
            return [it for it in verdicts if it["cause"] == "unavailable" and all(word in it["says"] for word in words)]

        return attempt

    def logged(self, *words):
        return lambda: any(all(word in line for word in words) for line in self.exporter.log().splitlines())

    @contextlib.contextmanager
    def after(self, what, *conditions, seconds=30):
        """Prints how long it takes, from the change inside `with`, until all conditions hold."""
        began = time.monotonic()
        yield
        try:
            for condition in conditions:
                until(what, condition, seconds)
            print(f"ok    {what}: {time.monotonic() - began:.1f} s", flush=True)
        except TimeoutError as error:
            self.failed.append(what)
            print(f"FAIL  {error}", flush=True)

    def holds(self, what, *conditions):
        with self.after(what, *conditions):
            pass


def main(binary, port, work):
    api, work = Api(port), pathlib.Path(work)
    print(f"ok    API server {api.call('GET', '/version')['gitVersion']}")
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    account = api.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    uid = account["metadata"]["uid"]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "exporter"}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    binding = {"metadata": {"name": "exporter"}, "roleRef": reference, "subjects": [subject]}
    api.call("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings", binding)
    api.allow(["get", "list", "watch"])
    # What the kubelet mounts.
    mounted = work / "serviceaccount"
    mounted.mkdir()
    (mounted / "ca.crt").write_text((work / "certs" / "apiserver.crt").read_text())
    first = token(work, uid, 60)
    (mounted / "token").write_text(first)
    proxy = Proxy(port)
    program = work / "in-pod"
    program.write_text(
        f"""#!/bin/sh
mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io && ln -s {mounted} /run/secrets/kubernetes.io/serviceaccount
exec {binary} "$@"
"""
    )
    launcher = work / "launcher"
    launcher.write_text(f'#!/bin/sh\nexec unshare --mount sh {program} "$@"\n')
    launcher.chmod(0o755)
    pods = Pods(api)
    for number in range(3):
        pods.create(f"llama-{number}")
        pods.run(f"llama-{number}", f"127.0.0.{number + 2}")
    pods.create("other-node-0", node="gpu-2")
    pods.run("other-node-0", "127.0.0.9")
    pods.create("watched-0", containers=[{"name": "trtllm-exporter", "image": "trtllm-exporter:1"}])
    pods.run("watched-0", "127.0.0.10")
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(proxy.port), "NODE_NAME": NODE, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    began = time.monotonic()
    try:
        with Exporter(launcher, "--source", f"kubernetes:{NAMESPACE}", environment=environment) as exporter:
            judge = Judge(exporter)
            judge.holds("three pods are found and counted", *(judge.grows(f"llama-{number}") for number in range(3)))
            print(f"      since the start: {time.monotonic() - began:.1f} s")
            judge.holds("a pod with a sidecar is left", judge.found("watched-0", "its container trtllm-exporter reads"))
            judge.holds("a pod of another node is not looked for", lambda: not judge.found("other-node-0")())
            labels = [it for it in exporter.page().labels("nv_trt_llm_iterations_total") if it["pod"] == "llama-1"]
            print(f"      labels of one: {labels}")

            with judge.after("a new pod is loading", judge.found("late-0", "ContainerCreating")):
                pods.create("late-0")
            with judge.after("the new pod runs, and is counted", judge.grows("late-0")):
                pods.run("late-0", "127.0.0.6")

            reason, killed = "CrashLoopBackOff after OOMKilled", judge.verdict("CrashLoopBackOff after OOMKilled, exit code 137")
            what = "a killed server: the reason is in discovery and in the verdict"
            with judge.after(what, judge.found("llama-1", f"not ready: {reason}"), killed):
                pods.servers["llama-1"].stop()
                crashed = status(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended("OOMKilled", 137), restartCount=2)
                api.set_status("llama-1", containerStatuses=[crashed])
            print(f"      {[it['says'] for it in killed()]}")
            before = judge.counted("llama-1")

            loads = judge.verdict("loads the model again", "after OOMKilled, exit code 137")
            with judge.after("a long load after it is critical, too", lambda: [it for it in loads() if it["severity"] == "critical"]):
                unready = {"type": "ContainersReady", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                loading = running(ready=False, lastState=ended("OOMKilled", 137), restartCount=3)
                api.set_status("llama-1", containerStatuses=[loading], conditions=[unready])
            with judge.after("it is started again, and its totals continue", judge.grows("llama-1", before)):
                pods.start("llama-1", "127.0.0.3")
                api.set_status("llama-1", containerStatuses=[running(lastState=ended("OOMKilled", 137), restartCount=3)])

            with judge.after("a lost node is named", judge.found("late-0", "the node is not ready"), judge.verdict("the node is not ready")):
                pods.servers["late-0"].stop()
                api.set_status("late-0", conditions=[{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}])
            with judge.after("an evicted pod says why", judge.found("llama-2", "Evicted"), judge.verdict("Evicted: The node was low on resource")):
                pods.servers["llama-2"].stop()
                api.set_status("llama-2", phase="Failed", reason="Evicted", message="The node was low on resource: memory.", containerStatuses=[])
            with judge.after("its address is that of another pod", judge.grows("reuse-0"), judge.gone("llama-2")):
                pods.create("reuse-0")
                pods.run("reuse-0", "127.0.0.4")
            # The next search, five seconds later, must not confuse the two pods.
            with judge.after("whose totals continue", judge.grows("reuse-0", judge.counted("reuse-0") + 30)):
                time.sleep(6)
            with judge.after("a deleted pod leaves the page", judge.gone("reuse-0")):
                api.delete("reuse-0")

            what, away = "an API server that is away: a warning, and engines stay", judge.logged("level=warn", "pods in the namespace")
            with judge.after(what, away, judge.grows("llama-0", judge.counted("llama-0"))):
                proxy.is_up = False
                proxy.cut()
            with judge.after("it is back, and a pod that came meanwhile is counted", judge.grows("back-0"), seconds=60):
                pods.create("back-0")
                pods.run("back-0", "127.0.0.7")
                proxy.is_up = True

            for verbs, refused in ((["get", "list"], "watch"), (["get"], "list")):
                words = f"the service account must not {refused} pods in the namespace {NAMESPACE}"
                grows = judge.grows("llama-0", judge.counted("llama-0"))
                with judge.after(f"without {refused}: the verb is named, and engines stay", judge.logged("level=warn", words), grows):
                    api.allow(verbs)
                    proxy.cut()
                with judge.after(f"with {refused} again", judge.logged("kubernetes: gone", words), seconds=60):
                    api.allow(["get", "list", "watch"])
                    proxy.cut()

            def is_expired():
                try:
                    api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?limit=1", token=first)
                except urllib.error.HTTPError as error:
                    return error.code == 401
                return False

            until("the token expires", is_expired, 180)
            what, refused = "an expired token: a warning, and engines stay", judge.logged("does not accept the token", "/token")
            with judge.after(what, refused, judge.grows("llama-0", judge.counted("llama-0"))):
                proxy.cut()
            with judge.after("a new token, and a pod that was deleted meanwhile", judge.gone("back-0"), seconds=60):
                (mounted / "token").write_text(token(work, uid, 3600))
                api.delete("back-0")
            for name in ("other-node-0", "watched-0"):
                assert pods.servers[name].truth()["received"]["iterations"] == 0, f"{name} was read"
            print("ok    nobody read the pods of the other node and with a sidecar")
            if judge.failed:
                print(exporter.log())
    finally:
        pods.stop()
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
