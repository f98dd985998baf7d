#!/usr/bin/env python3
"""listen.py SOCKET FILE: accepts publishers and appends the hello line of each to FILE. Reads and discards the records."""
import socket
import sys
import threading


def receive(connection, file):
    with connection, connection.makefile("rb") as lines:
        hello = lines.readline()
        with open(file, "ab") as log:
            log.write(hello)
        for _ in lines:
            pass


listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(sys.argv[1])
listener.listen(64)
while True:
    threading.Thread(target=receive, args=(listener.accept()[0], sys.argv[2]), daemon=True).start()
