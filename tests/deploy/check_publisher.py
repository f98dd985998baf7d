"""Checks examples/python/publish.py with a socket that is missing, reads, stops reading, closes and returns."""
import json
import os
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/python"))
sys.dont_write_bytecode = True
from publish import DemoLLM, Publisher  # noqa: E402


def listen(path):
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    listener.settimeout(5)
    return listener


def read_lines(peer, data=b""):
    """Complete lines until 0.2 s pass without data, and the incomplete rest."""
    peer.settimeout(0.2)
    try:
        while chunk := peer.recv(65536):
            data += chunk
    except TimeoutError:
        pass
    lines = data.split(b"\n")
    return [json.loads(line) for line in lines[:-1]], lines[-1]


def main():
    llm = DemoLLM()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ingest.sock")
        publisher = Publisher(path, "m", retry=0.05)
        assert not publisher.publish(llm.record()) and publisher.dropped == 1
        print("ok    no exporter: the record is dropped and counted")

        listener = listen(path)
        time.sleep(0.06)
        for _ in range(20):
            assert publisher.publish(llm.record())
        peer, _ = listener.accept()
        lines, rest = read_lines(peer)
        assert lines[0]["hello"] == {"model": "m", "version": "1", "pid": os.getpid()} and len(lines) == 21 and not rest, lines[0]
        assert [line["iter"] for line in lines[1:]] == list(range(2, 22))
        print("ok    hello first, then each record once and in order")

        began, flood = time.monotonic(), 5000
        for _ in range(flood):
            publisher.publish(llm.record())
        took = time.monotonic() - began
        assert publisher.dropped > 1000 and took < 2, (publisher.dropped, took)
        dropped = publisher.dropped
        lines, rest = read_lines(peer)
        publisher.publish(llm.record())  # completes the line that did not fit into the full socket
        more, rest = read_lines(peer, rest)
        whole = len(lines) + len(more)
        assert publisher.sent == 20 + whole and not rest, (publisher.sent, whole, rest)
        print(f"ok    a reader that stops: {dropped} of {flood} dropped in {took:.2f} s, no incomplete line")

        peer.close()
        listener.close()
        while publisher.publish(llm.record()):
            pass
        listener = listen(path)
        time.sleep(0.06)
        assert publisher.publish(llm.record())
        peer, _ = listener.accept()
        lines, _ = read_lines(peer)
        assert "hello" in lines[0] and len(lines) == 2, lines
        print("ok    restarted exporter: connects again and sends hello first")
        peer.close()
        listener.close()


if __name__ == "__main__":
    main()
