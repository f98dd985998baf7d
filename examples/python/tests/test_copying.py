"""Tests copies of statistics that a server reads itself, with objects that have the method names of TensorRT-LLM."""
import asyncio
import copy
import inspect
import os
import pickle
import subprocess
import sys
import textwrap
import types
import unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.dont_write_bytecode = True
from test_publisher import LookAlikeLLM, SocketTest, perf_metrics, until  # noqa: E402
from trtllm_exporter_publisher import copying  # noqa: E402

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Result:
    """A GenerationResult. Each step generates one token, and the second step is the last."""

    request_id, prompt_token_ids, cached_tokens = 5, [1, 2, 3], 2

    def __init__(self):
        self.outputs = [types.SimpleNamespace(
            index=0, token_ids=[], finish_reason="length", request_perf_metrics=perf_metrics())]

    @property
    def finished(self):
        return len(self.outputs[0].token_ids) == 2

    def __aiter__(self):
        return self

    async def __anext__(self):
        return self.__next__()

    def __next__(self):
        if self.finished:
            raise StopAsyncIteration
        self.outputs[0].token_ids = self.outputs[0].token_ids + [7]
        return self

    async def aresult(self):
        return self.result()

    def __await__(self):
        return self.aresult().__await__()

    def result(self, timeout=None):
        while not self.finished:
            self.__next__()
        return self


class ServedLLM(LookAlikeLLM):
    async def get_stats_async(self, timeout):  # like TensorRT-LLM's method, it does not call self.get_stats
        for record in LookAlikeLLM.get_stats(self, timeout):
            yield record

    def generate_async(self, inputs, sampling_params=None, *, priority=0.5):
        self._made += 2
        return Result()


class Copying(SocketTest):
    def setUp(self):
        super().setUp()
        self.listener, self.llm = self.listen(), ServedLLM()

    def iterations(self):
        return [record["iter"] for record in self.listener.records() if "iter" in record]

    def requests(self):
        return [record for record in self.listener.records() if "requestId" in record]

    def test_the_server_and_the_exporter_get_the_same_records(self):
        async def serve():
            return [record["iter"] async for record in self.llm.get_stats_async(timeout=0.01)]

        with copying(self.llm, self.path):
            self.llm.generate([[1], [2]])
            taken = asyncio.run(serve())
            self.llm.generate([[3]])
            taken += [record["iter"] for record in self.llm.get_stats(2)]
            until(lambda: len(self.iterations()) == 12)
        self.assertEqual((taken, self.iterations()), (list(range(12)), list(range(12))))

    def test_a_server_that_stops_in_the_middle_gets_the_rest_later(self):
        async def take(most):
            taken, records = [], self.llm.get_stats_async(timeout=0)
            while len(taken) < most:
                taken.append(await records.__anext__())
            return taken

        class Waiting(LookAlikeLLM):
            """Records wait until somebody reads them, as in TensorRT-LLM's queue."""
            waiting = list(range(5))

            def get_stats_async(self, timeout):
                return self

            async def __anext__(self):
                return {"iter": self.waiting.pop(0)}

        self.llm = Waiting()
        with copying(self.llm, self.path):
            asyncio.run(take(2))
            until(lambda: len(self.iterations()) == 2)
            asyncio.run(take(3))
            until(lambda: len(self.iterations()) == 5)
        self.assertEqual(self.iterations(), list(range(5)))

    def test_an_idle_engine_connects_when_its_server_reads_nothing_new(self):
        with copying(self.llm, self.path):
            self.assertEqual(self.llm.get_stats(0), [])
            until(lambda: self.listener.connections)

    def test_nothing_is_read_for_a_server_that_reads_nothing(self):
        with copying(self.llm, self.path) as publisher:
            self.llm.generate([[1]])
        self.assertEqual((publisher.sent, len(self.llm.get_stats(0))), (0, 4))

    def test_a_finished_request_is_published_once_however_the_server_waits(self):
        async def each(result):
            async for step in result:
                self.assertIs(step, result)
            await result

        async def whole(result):
            return await result

        with copying(self.llm, self.path):
            for number, wait in enumerate((each, whole, None), 1):
                result = self.llm.generate_async([1, 2, 3])
                self.assertIsInstance(result, Result)
                result.result() if wait is None else asyncio.run(wait(result))
                result.result()
                until(lambda: len(self.requests()) == number)
        entry = self.requests()[0]
        self.assertEqual((entry["finishReason"], entry["promptTokens"], entry["outputTokens"]), ("length", 3, 2))
        self.assertEqual(entry["cachedTokens"], 2)
        self.assertEqual(entry["perfMetrics"]["timing_metrics"]["first_token_time"], 12.0)

    def test_the_signature_stays_and_the_end_restores_the_methods(self):
        before = inspect.signature(self.llm.generate_async)
        with copying(self.llm, self.path):
            self.assertEqual(inspect.signature(self.llm.generate_async), before)
            self.assertIn("generate_async", vars(self.llm))
        self.assertEqual(set(vars(self.llm)), {"args", "text", "_made", "_given"})

    def test_a_result_can_be_pickled_and_copied(self):
        with copying(self.llm, self.path):
            result = self.llm.generate_async([1, 2, 3])
            sent = pickle.loads(pickle.dumps(result))
            self.assertIs(type(sent), Result)
            self.assertNotIn("_publish_when_finished", vars(sent))
            self.assertEqual(len(copy.copy(result).result().outputs[0].token_ids), 2)
            self.assertEqual(self.requests(), [])
            result.result()
            until(lambda: len(self.requests()) == 1)

    def test_another_instrumentation_stays(self):
        class_method = self.llm.get_stats
        before = self.llm.get_stats = lambda timeout: class_method(timeout)
        with copying(self.llm, self.path):
            pass
        self.assertIs(self.llm.get_stats, before)
        copies = copying(self.llm, self.path)
        copies.start()
        copied = self.llm.get_stats
        after = self.llm.get_stats = lambda timeout: copied(timeout)
        copies.stop()
        self.assertIs(self.llm.get_stats, after)
        self.llm.generate([[1]])
        self.assertEqual((len(self.llm.get_stats(0)), copies.publisher.sent + copies.publisher.dropped), (4, 0))

    def test_an_error_of_the_copy_is_logged_once_and_does_not_reach_the_server(self):
        self.llm.get_stats = lambda timeout: [{"iter": object()}, {"iter": object()}]
        with self.assertLogs("trtllm_exporter_publisher", "WARNING") as logs, copying(self.llm, self.path):
            self.assertEqual(len(self.llm.get_stats(0)), 2)
        self.assertEqual(len(logs.output), 1)


SERVER = """
    import os, sys
    sys.path[:0] = os.environ["FOLDERS"].split(os.pathsep)
    if __name__ == "__main__":
        from tensorrt_llm import LLM
        llm = LLM("org/llama")
        llm.generate([[1]])
        print(len(llm.get_stats(0)), *sys.argv[1:])
"""


SPAWNING_SERVER = """
    import multiprocessing, os, sys
    sys.path[:0] = os.environ["FOLDERS"].split(os.pathsep)
    def serve(requests):
        from tensorrt_llm import LLM
        llm = LLM("org/llama")
        llm.generate([[1]] * requests)
        print(len(llm.get_stats(0)))
    if __name__ == "__main__":
        child = multiprocessing.get_context(sys.argv[1]).Process(target=serve, args=(2,))
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""


class Launcher(SocketTest):
    def setUp(self):
        super().setUp()
        self.folder = os.path.dirname(self.path)
        self.write("tensorrt_llm.py", "from test_publisher import LookAlikeLLM\nclass LLM(LookAlikeLLM):\n    pass\n")
        self.write("some_server.py", textwrap.dedent(SERVER))
        self.listener = self.listen()

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def run_server(self, *arguments, **environment):
        folders = [self.folder, os.path.dirname(os.path.abspath(__file__)), PACKAGE]
        environment = {"TRTLLM_EXPORTER_SOCKET": self.path, **environment}
        return subprocess.run(
            [sys.executable, "-m", "trtllm_exporter_publisher", *arguments], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "FOLDERS": os.pathsep.join(folders), **environment})

    def test_a_server_publishes_without_a_change(self):
        ended = self.run_server("some_server", "--port", "8000")
        self.assertEqual((ended.stdout, ended.stderr, ended.returncode), ("4 --port 8000\n", "", 0))
        until(lambda: len(self.listener.records()) == 4)
        self.assertEqual(self.listener.connections[0][0]["hello"]["model"], "llama")

    def test_an_llm_of_another_kind_publishes_and_an_encoder_does_not(self):
        self.write("tensorrt_llm.py", """
from test_copying import ServedLLM
class LLM(ServedLLM):
    pass
class AutoDeploy(ServedLLM):
    pass
class MultimodalEncoder(LLM):
    pass
""")
        for kind, published in (("MultimodalEncoder", 0), ("AutoDeploy", 4), ("LLM", 8)):
            self.write("other_server.py", textwrap.dedent(SERVER).replace("import LLM", f"import {kind} as LLM"))
            self.assertEqual(self.run_server("other_server").stdout, "4\n")
            until(lambda: len(self.listener.records()) == published)

    def test_the_environment_names_the_engine(self):
        self.run_server("some_server", TRTLLM_EXPORTER_MODEL="served", TRTLLM_EXPORTER_MODEL_VERSION="3")
        until(lambda: len(self.listener.records()) == 4)
        hello = self.listener.connections[0][0]["hello"]
        self.assertEqual((hello["model"], hello["version"], hello.get("derived")), ("served", "3", None))

    def test_an_empty_socket_publishes_nothing_and_a_missing_exporter_does_not_matter(self):
        for path in ("", os.path.join(self.folder, "nobody.sock")):
            self.assertEqual(self.run_server("some_server", TRTLLM_EXPORTER_SOCKET=path).stdout, "4\n")
        self.assertEqual(self.listener.connections, [])

    def test_an_engine_in_a_spawned_child_is_found(self):
        self.write("spawning_server.py", textwrap.dedent(SPAWNING_SERVER))
        for number, method in enumerate(("spawn", "forkserver", "fork"), 1):
            ended = self.run_server("spawning_server", method)
            self.assertEqual((ended.stdout, ended.returncode), ("8\n", 0), ended.stderr)
            until(lambda: len(self.listener.records()) == 8 * number)

    def test_without_a_module_the_usage_is_printed(self):
        ended = self.run_server()
        self.assertEqual(ended.returncode, 2)
        self.assertIn("python3 -m trtllm_exporter_publisher MODULE", ended.stderr)


if __name__ == "__main__":
    unittest.main()
