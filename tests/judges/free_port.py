"""Finds a free TCP port of this machine, for a program that cannot choose a port itself and report it. If it runs as a
script, it prints a free port."""

import contextlib
import random
import socket


def free_port(among=range(1)):
    """Returns a free one of these ports. Port 0 means any port."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", random.choice(among)))
            return probe.getsockname()[1]


if __name__ == "__main__":
    print(free_port())
