"""Imitates a trtllm-serve that requires https (with OpenSSL) and a bearer token. Arguments: CERTIFICATE KEY TOKEN_FILE.
Prints its port."""
import http.server
import json
import ssl
import sys

from exporter import Answers

certificate, key, token_file = sys.argv[1:]


class Handler(Answers):
    iteration = 0

    def do_GET(self):
        with open(token_file, encoding="ascii") as file:
            expected = f"Bearer {file.read().strip()}"
        if self.headers.get("Authorization") != expected:
            return self.answer(b"{}", 401)
        if self.path == "/version":
            return self.answer(b'{"version": "1.2.0"}')
        if self.path != "/metrics":
            return self.answer(b"{}", 404)
        Handler.iteration += 1
        return self.answer(json.dumps([{"iter": Handler.iteration, "numActiveRequests": 1}]).encode())


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
