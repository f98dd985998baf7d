"""Finds a free TCP port of this machine, for a program that cannot choose a port itself and report it. If it runs as a
script, it prints a free port."""

import contextlib
import random
import socket


# Linux gives the ports from 32768 on to connections and to servers that ask for any port. Such a port could be taken before the
# program starts. Dynamo cannot use higher ports: it parses DYN_SYSTEM_PORT as a signed 16-bit number.
PORTS = range(20000, 32768)


def free_port():
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", random.choice(PORTS)))
            return probe.getsockname()[1]


if __name__ == "__main__":
    print(free_port())
