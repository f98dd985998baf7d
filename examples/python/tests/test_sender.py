"""Tests which records reach the exporter, which are dropped, and what the log reports."""
import asyncio
import errno
import gc
import os
import socket
import sys
import threading
import unittest
import unittest.mock

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.dont_write_bytecode = True
from test_publisher import SocketTest, until  # noqa: E402
from trtllm_exporter_publisher import Publisher, publishing  # noqa: E402
from trtllm_exporter_publisher import reports as reports_module  # noqa: E402
from trtllm_exporter_publisher.lines import Lines  # noqa: E402
from trtllm_exporter_publisher.reports import Reports  # noqa: E402

LOGGER = "trtllm_exporter_publisher"
FILL = "x" * 900  # a record of an engine has about this many bytes


class CountingSocket(socket.socket):
    sends = 0

    def send(self, *arguments):
        CountingSocket.sends += 1
        return super().send(*arguments)


class OneDrain:
    """An engine that returns all its records at once."""

    def __init__(self, records):
        self.waiting = records

    def get_stats(self, timeout):
        records, self.waiting = self.waiting, []
        return records


class Sending(SocketTest):
    def publish(self, publisher, numbers):
        for number in numbers:
            self.assertTrue(publisher.publish({"iter": number, "fill": FILL}))

    def iterations(self, *listeners):
        return [record["iter"] for listener in listeners for record in listener.records()]

    def dead_exporter(self):
        """A socket that never reads. Closing it leaves lines unread, as a killed exporter does."""
        exporter = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        exporter.bind(self.path)
        exporter.listen()
        return exporter

    def test_a_drain_of_1000_records_is_sent_in_chunks_and_loses_none(self):
        listener, engine = self.listen(), OneDrain([{"iter": n, "fill": FILL} for n in range(1000)])
        CountingSocket.sends = 0
        with unittest.mock.patch("socket.socket", CountingSocket), publishing(engine, self.path) as publisher:
            until(lambda: publisher.sent == 1000)
        until(lambda: len(listener.records()) == 1000)
        self.assertEqual((self.iterations(listener), publisher.dropped), (list(range(1000)), 0))
        self.assertLess(CountingSocket.sends, 200)

    def test_an_invalid_record_does_not_lose_the_rest_of_its_drain(self):
        listener, engine = self.listen(), OneDrain([{"iter": 0}, {"iter": object()}, {"iter": 2}])
        with self.assertLogs(LOGGER, "WARNING") as logs, publishing(engine, self.path) as publisher:
            until(lambda: len(listener.records()) == 2)
        self.assertEqual((self.iterations(listener), publisher.dropped, len(logs.output)), ([0, 2], 1, 1))

    def test_an_exporter_that_restarts_under_load_misses_no_record(self):
        listeners, publisher = [self.listen()], self.publisher()
        for number in range(784):
            self.publish(publisher, [number])
            if number % 200 == 100:
                until(lambda: len(self.iterations(*listeners)) > number - 50)
                listeners[-1].close()
            if number % 200 == 199:
                listeners.append(self.listen())
        listeners.append(self.listen())
        until(lambda: set(self.iterations(*listeners)) == set(range(784)) and publisher.sent == 784)
        self.assertEqual(publisher.dropped, 0)
        self.assertTrue(all("hello" in lines[0] for listener in listeners for lines in listener.connections if lines))

    def test_lines_that_an_exporter_left_unread_are_sent_again(self):
        exporter, publisher = self.dead_exporter(), self.publisher()
        self.publish(publisher, range(20))
        connection, _ = exporter.accept()
        until(lambda: publisher.sent == 20)
        exporter.close()
        connection.close()
        listener = self.listen()
        until(lambda: len(listener.records()) == 20 and publisher.sent == 20)
        self.assertEqual((self.iterations(listener), publisher.dropped), (list(range(20)), 0))

    def test_lines_that_the_exporter_has_read_are_not_sent_again(self):
        first, publisher = self.listen(), self.publisher()
        self.publish(publisher, range(100))
        until(lambda: len(first.records()) == 100 and publisher._sender._accepted)
        first.close()
        second = self.listen()
        self.publish(publisher, range(100, 103))
        until(lambda: len(second.records()) == 3)
        self.assertEqual(self.iterations(first, second), list(range(103)))

    def test_a_line_that_was_sent_in_part_is_sent_again_as_a_whole(self):
        exporter, publisher = self.dead_exporter(), self.publisher()
        self.publish(publisher, range(1000))  # more than fits into the socket
        connection, _ = exporter.accept()
        until(lambda: publisher._sender._chunk and publisher._sender._rest)
        exporter.close()
        connection.close()
        listener = self.listen()
        until(lambda: len(listener.records()) == 1000)
        self.assertEqual(self.iterations(listener), list(range(1000)))

    def test_ten_publishers_at_once_lose_nothing(self):
        listener, publishers = self.listen(), [self.publisher() for _ in range(10)]
        threads = [threading.Thread(target=self.publish, args=(publisher, range(1000))) for publisher in publishers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: len(listener.records()) == 10000 == sum(publisher.sent for publisher in publishers))
        for lines in listener.connections:
            self.assertEqual([line["iter"] for line in lines[1:]], list(range(1000)))

    def test_closing_sends_the_rest_and_counts_what_nobody_reads(self):
        listener, publisher = self.listen(), Publisher(self.path, "m")
        self.publish(publisher, range(10))
        publisher.close()
        until(lambda: len(listener.records()) == 10)
        self.assertFalse(publisher.publish({"iter": 10}))
        listener.close()
        publisher = Publisher(self.path, "m")
        self.publish(publisher, range(10))
        with self.assertLogs(LOGGER, "WARNING") as logs:
            publisher.close()
        self.assertEqual((publisher.sent, publisher.dropped), (0, 10))
        self.assertIn("closed before 10 records were sent", logs.output[-1])

    def test_a_publisher_that_nobody_closed_disconnects_when_it_is_collected(self):
        listener, publisher = self.listen(), Publisher(self.path, "m")
        publisher.publish({"iter": 1})
        until(lambda: len(listener.records()) == 1)
        del publisher
        gc.collect()
        until(lambda: listener.ended == 1)

    def test_the_end_of_an_asyncio_server_does_not_block_its_loop(self):
        exporter, turns = self.dead_exporter(), []
        self.addCleanup(exporter.close)

        async def turn():
            while True:
                turns.append(1)
                await asyncio.sleep(0.01)

        async def serve():
            async with publishing(OneDrain([{"iter": n, "fill": FILL} for n in range(1000)]), self.path) as publisher:
                while not publisher.sent:
                    await asyncio.sleep(0.01)
                turning = asyncio.create_task(turn())
                turns.clear()
                await asyncio.sleep(0)
            turning.cancel()
            return publisher

        with self.assertLogs(LOGGER, "WARNING"):
            publisher = asyncio.run(serve())
        self.assertGreater(len(turns), 10)
        self.assertEqual(publisher.sent + publisher.dropped, 1000)


class Logging(SocketTest):
    publish = Sending.publish

    def warnings_of(self, publisher, contained):
        with self.assertLogs(LOGGER, "WARNING") as logs:
            self.publish(publisher, range(3))
            until(lambda: logs.output)
            attempts = publisher._sender._retry_at
            until(lambda: publisher._sender._retry_at > attempts + 0.05)  # several more attempts log nothing
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertIn(contained, logs.output[0])
        self.assertIn(self.path, logs.output[0])

    def test_a_path_that_does_not_exist_is_logged_once(self):
        self.warnings_of(self.publisher(), "this socket does not exist; check the path")

    def test_a_socket_without_an_exporter_is_logged_once(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
            left_behind.bind(self.path)
        self.warnings_of(self.publisher(), "no exporter listens there; start trtllm-exporter")

    def test_a_missing_permission_is_logged_once(self):
        # root may write to every socket, so this test replaces the kernel's answer.
        refused = unittest.mock.Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))
        with unittest.mock.patch("socket.socket", type("Socket", (socket.socket,), {"connect": refused})):
            publisher = self.publisher()
            self.warnings_of(publisher, f"permission denied for user {os.geteuid()}")

    def test_a_path_that_is_too_long_is_logged_once(self):
        self.path += "x" * 100
        self.warnings_of(self.publisher(), "too long")

    def test_a_connection_that_is_back_is_logged_with_the_records_dropped_meanwhile(self):
        publisher = self.publisher(buffer_bytes=64 << 10)
        with self.assertLogs(LOGGER, "WARNING") as logs:
            self.publish(publisher, range(500))
            until(lambda: any("were dropped, because" in line for line in logs.output))
            dropped, listener = publisher.dropped, self.listen()
            until(lambda: any("connected to" in line for line in logs.output))
        self.assertIn("the buffer of 64 KiB is full: there is no connection", logs.output[1])
        self.assertIn(f"connected to {self.path}; {dropped} records were dropped meanwhile", logs.output[-1])
        self.assertEqual(len(logs.output), 3, logs.output)
        until(lambda: len(listener.records()) == 500 - dropped)

    def test_dropped_records_are_logged_once_a_minute_with_their_number(self):
        reports, now = Reports("path", 1 << 10), 0.0
        with self.assertLogs(LOGGER, "WARNING") as logs, \
                unittest.mock.patch.object(reports_module.time, "monotonic", lambda: now):
            for dropped in range(1, 1201):
                reports.overflow(dropped, True)
                now += 0.1
        self.assertEqual([line.split(":")[2].split()[0] for line in logs.output], ["1", "600"])

    def test_a_first_connection_is_no_warning(self):
        listener, publisher = self.listen(), self.publisher()
        with self.assertLogs(LOGGER, "INFO") as logs:
            self.publish(publisher, range(3))
            until(lambda: len(listener.records()) == 3)
        self.assertEqual([(record.levelname, record.getMessage()) for record in logs.records], [
            ("INFO", f"connected to {self.path}")])


class Buffer(unittest.TestCase):
    def test_a_full_buffer_drops_its_oldest_lines(self):
        lines = Lines(10)
        self.assertEqual([lines.append(line) for line in (b"aaaa", b"bbbb", b"cccc", b"d" * 11, b"ee")], [0, 0, 1, 3, 0])
        self.assertEqual((lines.take(100), lines.bytes), ([b"ee"], 0))

    def test_lines_that_come_back_are_the_oldest(self):
        lines = Lines(10)
        lines.append(b"cccc")
        self.assertEqual(lines.put_back([b"aaaa", b"bbbb"]), 1)
        self.assertEqual(lines.take(100), [b"bbbb", b"cccc"])

    def test_a_chunk_has_whole_lines_and_at_least_one(self):
        lines = Lines(100)
        for line in (b"aaaa", b"bb", b"cccc"):
            lines.append(line)
        self.assertEqual([lines.take(3), lines.take(6), lines.take(6)], [[b"aaaa"], [b"bb", b"cccc"], []])

    def test_only_lines_that_may_be_unread_are_kept(self):
        lines = Lines(100)
        for line in (b"aaaa", b"bb", b"cccc"):
            lines.append(line)
        lines.keep_last(5)
        self.assertEqual(lines.bytes, 6)
        lines.keep_last(0)
        self.assertEqual(len(lines), 0)


if __name__ == "__main__":
    unittest.main()
