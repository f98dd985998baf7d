"""A free TCP port of this machine, for a program that cannot say which port it chose. Run alone, it prints one."""

import socket


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    print(free_port())
