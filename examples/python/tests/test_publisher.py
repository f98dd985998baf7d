"""Tests the package with a socket and with objects that have the method names of TensorRT-LLM."""
import asyncio
import datetime
import enum
import errno
import json
import logging
import os
import re
import socket
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))  # last: prefer an installed package
sys.dont_write_bytecode = True
from trtllm_exporter_publisher import Publisher, engine_name, publishing  # noqa: E402
from trtllm_exporter_publisher.demo import DemoLLM  # noqa: E402
from trtllm_exporter_publisher.publisher import _BUILD  # noqa: E402
from trtllm_exporter_publisher.records import iteration  # noqa: E402
from trtllm_exporter_publisher.settings import engine_settings  # noqa: E402

logging.getLogger("trtllm_exporter_publisher").addHandler(logging.NullHandler())  # only the tests read the log


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("timeout")
        time.sleep(0.002)


class Listener:
    """Stores the lines of all publishers. `connections` has one list of lines for each connection."""

    def __init__(self, path, reading=True):
        self.path, self.reading, self.connections, self.peers, self.ended = path, reading, [], [], 0
        if os.path.exists(path):
            os.unlink(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(path)
        self.socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            self.peers.append(peer)
            threading.Thread(target=self._read, args=(peer,), daemon=True).start()

    def _read(self, peer):
        lines = []
        self.connections.append(lines)
        while not self.reading:
            time.sleep(0.002)
        with peer.makefile("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):  # the end of a connection may cut its last line
                    lines.append(json.loads(line))
        self.ended += 1

    def records(self):
        return [line for lines in self.connections for line in lines if "hello" not in line]

    def close(self):
        if self.socket.fileno() >= 0:
            self.socket.shutdown(socket.SHUT_RDWR)  # a thread that waits in accept() would keep the socket open
        self.socket.close()
        for peer in self.peers:
            peer.shutdown(socket.SHUT_RDWR)


def perf_metrics():
    """RequestPerfMetrics as the bindings return it: times are timedelta."""
    seconds = datetime.timedelta
    return types.SimpleNamespace(
        first_iter=5, last_iter=9, iter=9,
        timing_metrics=types.SimpleNamespace(
            arrival_time=seconds(seconds=10), first_scheduled_time=seconds(seconds=11), first_token_time=seconds(seconds=12),
            last_token_time=seconds(seconds=13), kv_cache_transfer_start=seconds(0), kv_cache_transfer_end=seconds(0),
            kv_cache_size=0),
        kv_cache_metrics=types.SimpleNamespace(
            num_total_allocated_blocks=4, num_new_allocated_blocks=3, num_reused_blocks=1, num_missed_blocks=3,
            kv_cache_hit_rate=0.25),
        speculative_decoding=types.SimpleNamespace(
            acceptance_rate=0.5, total_accepted_draft_tokens=2, total_draft_tokens=4))


class LookAlikeLLM:
    """The methods of tensorrt_llm.LLM that a server uses."""

    def __init__(self, model="meta-llama/Llama-3.1-8B", text=False):
        self.args, self.text = types.SimpleNamespace(model=model), text
        self._made, self._given = 0, 0

    def generate(self, prompts):
        outputs = []
        for prompt in prompts:
            self._made += 4
            completion = types.SimpleNamespace(
                index=0, token_ids=[7] * 4, finish_reason="length", request_perf_metrics=perf_metrics())
            outputs.append(types.SimpleNamespace(
                request_id=len(outputs) + 1, prompt_token_ids=prompt, outputs=[completion], finished=True))
        return outputs

    def get_stats(self, timeout):
        records = [{"iter": n, "numActiveRequests": 1} for n in range(self._given, self._made)]
        self._given = self._made
        return [json.dumps(record) for record in records] if self.text else records

    async def get_stats_async(self, timeout):
        for record in self.get_stats(timeout):
            yield record
        await asyncio.sleep(0)


class Statistics:
    """IterationStats or RequestStatsPerIteration of tensorrt_llm.bindings.executor."""

    def __init__(self, values):
        self._values = values

    def to_json_str(self):
        return json.dumps(self._values)


class LookAlikeExecutor:
    """The methods of tensorrt_llm.bindings.executor.Executor that a server uses."""

    def __init__(self):
        self.shut_down, self.broken, self._responses, self._iterations = False, 0, [], []

    def can_enqueue_requests(self):
        return not self.shut_down

    def enqueue_request(self, request):
        self._iterations += range(len(self._iterations), len(self._iterations) + 3)
        result = types.SimpleNamespace(
            is_final=True, output_token_ids=[[1, 2, 3]], finish_reasons=[types.SimpleNamespace(name="END_ID")],
            request_perf_metrics=perf_metrics())
        self._responses.append(types.SimpleNamespace(request_id=8, result=result, has_error=lambda: False))
        return 8

    def await_responses(self):
        responses, self._responses = self._responses, []
        return responses

    def get_latest_iteration_stats(self):
        if self.broken:
            self.broken -= 1
            raise RuntimeError("it is broken")
        iterations, self._iterations = self._iterations, []
        return [Statistics({"iter": n, "numActiveRequests": 1}) for n in iterations]

    def get_latest_request_stats(self):
        return [Statistics({"iter": 0, "requestStats": [{"id": 8, "stage": "GENERATION_COMPLETE"}]})]


class SocketTest(unittest.TestCase):
    """A test with a path for the exporter's socket."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "ingest.sock")

    def listen(self, **options):
        listener = Listener(self.path, **options)
        self.addCleanup(listener.close)
        return listener

    def publisher(self, **options):
        publisher = Publisher(self.path, "m", retry=0.01, **options)
        self.addCleanup(publisher.close)
        return publisher


class Publishing(SocketTest):
    def test_an_llm_publishes_iterations_and_finished_requests(self):
        for text in (False, True):
            with self.subTest(text=text):
                listener, llm = self.listen(), LookAlikeLLM(text=text)
                with publishing(llm, self.path) as publisher:
                    for output in llm.generate([[1, 2], [3]]):
                        self.assertTrue(publisher.observe(output))
                until(lambda: len(listener.records()) == 10)
                hello = listener.connections[0][0]["hello"]
                self.assertEqual(hello, {"model": "Llama-3.1-8B", "version": "1", "derived": True, "pid": os.getpid()})
                records = listener.records()
                self.assertEqual([record["iter"] for record in records if "iter" in record], list(range(8)))
                entry = next(record for record in records if record.get("requestId") == 1)
                self.assertEqual((entry["finishReason"], entry["promptTokens"], entry["outputTokens"]), ("length", 2, 4))
                self.assertNotIn("cachedTokens", entry)  # older releases do not report it
                self.assertEqual(entry["perfMetrics"]["timing_metrics"]["last_token_time"], 13.0)
                self.assertEqual(entry["perfMetrics"]["kv_cache_metrics"]["num_reused_blocks"], 1)
                self.assertEqual(entry["perfMetrics"]["speculative_decoding"]["total_draft_tokens"], 4)
                listener.close()

    def test_an_asyncio_server_publishes_with_async_with(self):
        listener, llm = self.listen(), LookAlikeLLM()

        async def serve():
            async with publishing(llm, self.path, "llama", "2"):
                llm.generate([[1]])

        asyncio.run(serve())
        until(lambda: len(listener.records()) == 4)
        self.assertEqual(listener.connections[0][0]["hello"], {"model": "llama", "version": "2", "pid": os.getpid()})

    def test_an_executor_publishes_iterations_requests_and_responses(self):
        listener, executor = self.listen(), LookAlikeExecutor()
        with publishing(executor, self.path) as publisher:
            executor.enqueue_request(None)
            for response in executor.await_responses():
                publisher.observe(response)
        until(lambda: any("requestStats" in record for record in listener.records()))
        records = listener.records()
        entry = next(record for record in records if "perfMetrics" in record)
        self.assertEqual((entry["requestId"], entry["finishReason"]), (8, "END_ID"))
        self.assertNotIn("outputTokens", entry)  # the tokens of a Response may contain the prompt
        self.assertEqual(sum("numActiveRequests" in record for record in records), 3)

    def test_an_error_of_the_engine_is_logged_once_and_ends_nothing(self):
        listener, executor = self.listen(), LookAlikeExecutor()
        executor.broken = 3
        with self.assertLogs("trtllm_exporter_publisher") as logs, publishing(executor, self.path):
            executor.enqueue_request(None)
            until(lambda: any("numActiveRequests" in record for record in listener.records()))
        self.assertEqual(len([line for line in logs.output if "it is broken" in line]), 1)

    def test_an_engine_that_hangs_does_not_hang_its_server(self):
        class Hanging(LookAlikeExecutor):
            def get_latest_iteration_stats(self):
                released.wait()
                return super().get_latest_iteration_stats()

        class HangingLLM:
            async def get_stats_async(self, _timeout):
                yield {"iter": 1}
                await asyncio.sleep(1000)

        async def serve():
            async with publishing(HangingLLM(), self.path):
                await asyncio.sleep(0.2)

        released, listener = threading.Event(), self.listen()
        with unittest.mock.patch("trtllm_exporter_publisher.engine._END", 0.1), self.assertLogs("trtllm_exporter_publisher") as logs:
            asyncio.run(serve())
            executor = Hanging()
            executor.enqueue_request(None)
            with publishing(executor, self.path) as publisher:
                time.sleep(0.3)
            released.set()
            until(lambda: publisher.dropped)
        self.assertEqual(len([line for line in logs.output if "did not return its statistics" in line]), 2)
        until(lambda: len(listener.records()) == 1)
        self.assertEqual(listener.records(), [{"iter": 1}])

    def test_an_idle_engine_connects_before_its_first_record(self):
        async def serve(engine):
            async with publishing(engine, self.path):
                while not listener.connections:
                    await asyncio.sleep(0.01)

        listener = self.listen()
        for engine in (LookAlikeLLM(), LookAlikeExecutor()):
            with publishing(engine, self.path):
                until(lambda: listener.connections)
            listener.connections.clear()
        asyncio.run(asyncio.wait_for(serve(LookAlikeLLM()), 60))

    def test_a_worker_rank_does_not_connect(self):
        listener, executor = self.listen(), LookAlikeExecutor()
        executor.shut_down = True
        with publishing(executor, self.path):
            time.sleep(0.3)
        self.assertEqual(listener.connections, [])

    def test_a_failed_request_is_published_as_an_error(self):
        listener, publisher = self.listen(), Publisher(self.path)
        self.assertTrue(publisher.observe(types.SimpleNamespace(has_error=lambda: True, request_id=5)))
        until(lambda: listener.records())
        self.assertEqual(listener.records(), [{"requestId": 5, "perfMetrics": {}, "finishReason": "error", "executorId": 5}])
        publisher.close()

    def test_requests_without_result_are_ignored(self):
        publisher = Publisher(self.path)
        self.assertTrue(publisher.observe(types.SimpleNamespace(finished=False, outputs=[])))
        unfinished = types.SimpleNamespace(has_error=lambda: False, result=types.SimpleNamespace(is_final=False))
        self.assertTrue(publisher.observe(unfinished))
        self.assertEqual(publisher.sent + publisher.dropped, 0)

    def test_the_arguments_of_an_llm_are_published_as_its_settings(self):
        listener, some = self.listen(), types.SimpleNamespace
        llm = LookAlikeLLM()
        llm.args = some(
            model="llama", dtype="auto", tensor_parallel_size=4, pipeline_parallel_size=2, moe_expert_parallel_size=3,
            max_batch_size=None, max_num_tokens=8191, build_config=some(max_batch_size=96, max_num_tokens=1),
            quant_config=some(quant_algo=enum.Enum("QuantAlgo", {"FP8": "FP8"}).FP8),
            kv_cache_config=some(dtype="fp8", tokens_per_block=64), speculative_config=some(decoding_type="MTP"))
        with publishing(llm, self.path, config={"kv_cache_dtype": "nvfp4", "expert_parallel_size": 8}):
            llm.generate([[1]])
        until(lambda: len(listener.records()) == 4)
        self.assertEqual(listener.connections[0][0]["hello"]["config"], {
            "dtype": "auto", "quantization": "FP8", "tensor_parallel_size": "4", "pipeline_parallel_size": "2",
            "expert_parallel_size": "8", "kv_cache_dtype": "nvfp4", "tokens_per_block": "64", "speculative_method": "MTP",
            "max_batch_size": "96", "max_num_tokens": "8191"})

    def test_arguments_that_are_missing_or_strange_are_left_out(self):
        class Broken:
            @property
            def args(self):
                raise RuntimeError("not ready")

        some = types.SimpleNamespace
        strange = some(dtype=object(), quant_config=None, tensor_parallel_size=True, pipeline_parallel_size="",
                       moe_expert_parallel_size=-1, kv_cache_config=some(dtype=["fp8"]), max_batch_size=0)
        for engine in (LookAlikeExecutor(), Broken(), some(args=None), some(args=strange)):
            self.assertEqual(engine_settings(engine), {})
        self.assertEqual(engine_settings(some(args=some(tensor_parallel_size=2))), {"tensor_parallel_size": 2})

    def test_names_come_from_folders(self):
        for path, name in (("/models/llama/1", "llama"), ("/engines/llama-3-8b/fp8/tp2pp2/4-gpu/", "llama-3-8b"),
                           ("meta-llama/Llama-3.1-8B", "Llama-3.1-8B"), ("7B", "tensorrt_llm"),
                           ("/tmp/llama/7B/trt_engines/fp16/1-gpu", "llama"), ("/models/mixtral/8x7b", "mixtral"), ("/1/2", "tensorrt_llm"),
                           ("", "tensorrt_llm"), ("..", "tensorrt_llm"), ("ß" * 100, "ß" * 100)):
            self.assertEqual(engine_name(path), name)

    def test_a_number_that_is_not_finite_leaves_out_its_field_only(self):
        nan, infinite = float("nan"), float("inf")
        record = {"iter": 1, "iterLatencyMS": nan, "kvCacheStats": {"usedNumBlocks": 2, "cacheHitRate": infinite}, "x": [nan, 3]}
        finite = {"iter": 1, "kvCacheStats": {"usedNumBlocks": 2}, "x": [3]}
        for form in (record, json.dumps(record)):
            self.assertEqual(json.loads(iteration(form)), finite)
        self.assertEqual(iteration('{"iter": 1}'), '{"iter": 1}')

    def test_disabled_statistics_are_logged_immediately(self):
        llm = LookAlikeLLM()
        for is_on in (True, False):
            llm.args.enable_iter_perf_stats = is_on
            with self.assertLogs("trtllm_exporter_publisher") as logs:
                logging.getLogger("trtllm_exporter_publisher").info("begin")
                publishing(llm, self.path)
            self.assertEqual([line for line in logs.output if "enable_iter_perf_stats=True" in line] == [], is_on)

    def test_start_and_stop_replace_the_context(self):
        listener, llm = self.listen(), LookAlikeLLM()
        publishes = publishing(llm, self.path)
        self.assertIs(publishes.start(), publishes.publisher)
        llm.generate([[1]])
        publishes.stop()
        until(lambda: listener.ended == 1)
        self.assertEqual(len(listener.records()), 4)

    def test_the_cpp_publisher_skips_the_same_folders(self):
        header = Path(__file__).parents[3] / "cpp-bridge/publisher/include/trtllm_exporter/detail/options.h"
        words = re.search(r"const\* word : \{(.*?)\}\)", header.read_text(), re.DOTALL).group(1)
        self.assertEqual(set(re.findall(r'"(\w*)"', words)), _BUILD)

    def test_a_slow_reader_gets_whole_lines_and_the_rest_is_counted(self):
        listener, llm = self.listen(reading=False), DemoLLM()
        publisher = self.publisher(buffer_bytes=64 << 10)
        for _ in range(5000):
            publisher.publish(llm.record())
        self.assertGreater(publisher.dropped, 1000)
        listener.reading = True
        until(lambda: publisher.sent + publisher.dropped == 5000)
        until(lambda: len(listener.records()) == publisher.sent)
        self.assertEqual(listener.records()[-1]["iter"], 5000)  # the oldest records are dropped

    def test_the_child_of_a_fork_has_a_connection_of_its_own(self):
        listener, publisher = self.listen(), Publisher(self.path, "m")
        self.assertTrue(publisher.publish({"iter": 1}))
        until(lambda: publisher.sent == 1)
        with publisher._sender._wake:  # another thread may hold its lock during the fork
            self.assertTrue(publisher.publish({"iter": 3}))  # the parent still has this record in its buffer, and the child must not send it
            child = os.fork()
            if child == 0:
                closed = publisher._sender._socket.fileno() == -1  # a child that never publishes must not keep it open
                published = publisher.publish({"iter": 2})
                publisher.close()
                os._exit(0 if closed and published and publisher.sent == 2 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        until(lambda: len(listener.records()) == 3)
        self.assertEqual([[line.get("iter") for line in lines] for lines in listener.connections], [[None, 1, 3], [None, 2]])

    def test_without_a_free_descriptor_a_record_waits_and_the_cause_is_logged(self):
        publisher = self.publisher()
        with self.assertLogs("trtllm_exporter_publisher") as logs, \
                unittest.mock.patch("socket.socket", side_effect=OSError("too many open files")):
            self.assertTrue(publisher.publish({"iter": 1}))
            until(lambda: logs.output)
        self.assertIn("too many open files", logs.output[0])
        listener = self.listen()
        until(lambda: listener.records() == [{"iter": 1}])

    def test_a_connection_that_ends_before_the_hello_is_a_refusal(self):
        def send_too_late(connection, *_):
            connection.shutdown(socket.SHUT_RDWR)
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

        listener, publisher = self.listen(), self.publisher()
        with self.assertLogs("trtllm_exporter_publisher", "WARNING") as logs:
            with unittest.mock.patch("socket.socket", type("Socket", (socket.socket,), {"sendall": send_too_late})):
                publisher.publish({"iter": 1})
                until(lambda: len(listener.peers) >= 4)
            until(lambda: {"iter": 1} in listener.connections[-1])
        self.assertIn("closes the connection", logs.output[0])
        self.assertNotIn("Broken pipe", "".join(logs.output))

    def test_a_refused_name_is_logged_once_and_its_records_are_kept(self):
        listener, publisher = self.listen(), self.publisher()
        # On a slow machine, a connection that the test has not closed yet must not count as accepted.
        with self.assertLogs("trtllm_exporter_publisher", "WARNING") as logs, \
                unittest.mock.patch("trtllm_exporter_publisher.sender._REFUSAL", 3600.0):
            publisher.publish({"iter": 1})
            while len(listener.peers) < 4:
                for peer in listener.peers:
                    try:
                        peer.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass  # it is closed already
                time.sleep(0.002)
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertIn("its log says why: name in use", logs.output[0])
        until(lambda: {"iter": 1} in listener.connections[-1])


if __name__ == "__main__":
    unittest.main()
