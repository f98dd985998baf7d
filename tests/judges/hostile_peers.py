"""Peers for hostile.py: servers that send single bytes, and publishers."""

import http.server
import socket
import threading
import time


def array(element, size):
    return b"[" + b",".join([element] * (size // (len(element) + 1))) + b"]"


def record(number, filling=0):
    unknown = b',"unknown":"%s"' % (b"x" * filling) if filling else b""
    return b'{"iter":%d,"iterLatencyMS":5.5,"numActiveRequests":2,"numQueuedRequests":0,"numCompletedRequests":1%s}\n' % (number, unknown)


class Publisher:
    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(path)

    def send(self, data):
        self.stream.sendall(data)

    def close(self):
        self.stream.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                try:
                    server.answer(self)
                except OSError:
                    self.close_connection = True

            do_POST = do_GET

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.source = f"trtllm-serve:http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        pass

    @staticmethod
    def reply(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


class DrippingServer(Server):
    """A server that announces no length, sends `size` bytes of records, and then single bytes with pauses between them."""

    def __init__(self, size):
        self.start = b"[" + b",".join([record(7).strip()] * (size // 100))
        super().__init__()

    def answer(self, handler):
        if handler.path != "/metrics":
            return self.reply(handler, b"[]")
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        handler.wfile.write(self.start)
        while True:
            time.sleep(0.5)
            handler.wfile.write(b" ")
