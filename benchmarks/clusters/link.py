"""Limits the rate of a network: forwards connections between hosts, and delays their data.

Runs in a container between the workers, each of which has its own network. `link.py BITS_A_SECOND
'{"PORT": "HOST", …}' [SECONDS]` listens on each port, and forwards to the same port of its host.
SECONDS delays all data. Each host has a cable that limits the rate in each direction, as at a
switch: all connections of the host share it. Without a delay, data stays in the kernel (`splice`),
so forwarding takes little CPU time. A line at the end shows how much.
"""

import contextlib
import fcntl
import json
import os
import queue
import signal
import socket
import sys
import threading
import time

PIECE = 65_536
"""Bytes that are forwarded together."""
PIPE_BYTES = 1_048_576
BURST_SECONDS = 0.001
"""The time that a cable may catch up if its thread was woken too late."""
DIAL_SECONDS = 5.0


class Switch:
    """The cables of all hosts.

    Args:
        bits_a_second: the rate of each, in each direction.
        late_seconds: an additional delay of all data.
    """

    def __init__(self, bits_a_second: float, late_seconds: float = 0.0) -> None:
        self._rate, self.late_seconds = bits_a_second / 8, late_seconds
        self._lock = threading.Lock()
        self._free_at: dict[tuple[str, str], float] = {}
        self.moved = 0

    def delay(self, sender: str, receiver: str, count: int) -> float:
        """Take this number of bytes; return the seconds until the last of them arrives."""
        ways = (("from", sender), ("to", receiver))
        now = time.monotonic()
        with self._lock:
            begin = max(now - BURST_SECONDS, *(self._free_at.get(way, 0.0) for way in ways))
            until = begin + count / self._rate
            self._free_at.update(dict.fromkeys(ways, until))
            self.moved += count
        return max(0.0, until - now)


def forward(
    switch: Switch, names: tuple[str, str], source: socket.socket, target: socket.socket
) -> None:
    """Forward all data from one connection to the other, until one of them closes.

    Args:
        switch: limits the rate.
        names: the names of both hosts.
        source: the connection to read from.
        target: the connection to write to.
    """
    out_of_pipe, into_pipe = os.pipe()
    fcntl.fcntl(into_pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        while count := os.splice(source.fileno(), into_pipe, PIECE):
            time.sleep(switch.delay(*names, count))
            while count:
                count -= os.splice(out_of_pipe, target.fileno(), count)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one side is closed, so close the other one, too
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(out_of_pipe)
        os.close(into_pipe)


def forward_late(
    switch: Switch, names: tuple[str, str], source: socket.socket, target: socket.socket
) -> None:
    """Do the same as `forward`, with a delay; data on the way is not lost."""
    under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def arrive() -> None:
        with contextlib.suppress(OSError):
            while True:
                due, piece = under_way.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not piece:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(piece)

    arriving = threading.Thread(target=arrive)
    arriving.start()
    piece = b"nothing"
    while piece:
        try:
            piece = source.recv(PIECE)
        except OSError:
            piece = b""
        time.sleep(switch.delay(*names, len(piece)))
        under_way.put((time.monotonic() + switch.late_seconds, piece))
    arriving.join()


def join(switch: Switch, dialler: socket.socket, host: str, port: int) -> None:
    """Connect a host to the host that it has dialled; close the connection if that fails."""
    name = dialler.getpeername()[0]
    with (
        contextlib.suppress(OSError),
        dialler,
        socket.create_connection((host, port), DIAL_SECONDS) as found,
    ):
        other = found.getpeername()[0]
        for connection in (dialler, found):
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        move = forward_late if switch.late_seconds else forward
        back = threading.Thread(target=move, args=(switch, (other, name), found, dialler))
        back.start()
        move(switch, (name, other), dialler, found)
        back.join()


def listen(switch: Switch, server: socket.socket, host: str) -> None:
    """Forward all connections to this server, forever."""
    port = server.getsockname()[1]
    while True:
        dialler, _ = server.accept()
        threading.Thread(target=join, args=(switch, dialler, host, port), daemon=True).start()


def main(bits_a_second: float, hosts: dict[str, str], late_seconds: float) -> None:
    """Forward until a signal comes."""
    switch = Switch(bits_a_second, late_seconds)
    for port, host in hosts.items():
        server = socket.create_server(("", int(port)), backlog=128)
        threading.Thread(target=listen, args=(switch, server, host), daemon=True).start()
    signal.sigwait({signal.SIGTERM})
    used = os.times()
    print(json.dumps({"bytes": switch.moved, "cpu_seconds": used.user + used.system}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main(float(sys.argv[1]), json.loads(sys.argv[2]), float((*sys.argv[3:], 0)[0]))
