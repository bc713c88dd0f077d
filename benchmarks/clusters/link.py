"""A network of a limited rate: forwards connections between hosts, and delays what they send.

Runs in a container between the workers, each of which is on a network of its own:
`link.py BITS_A_SECOND '{"PORT": "HOST", …}' [SECONDS]` listens on each port, and forwards to the
same port of its host, where all arrives so many seconds later. Each host has a cable with the rate
in both directions, as at a switch: what it sends to several, and what comes to it from several,
shares that. Without a delay, data stays within the kernel (`splice`), so that forwarding takes
little of a processor's time, which the line printed at the end tells.
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
"""Bytes that go on together."""
PIPE_BYTES = 1_048_576
BURST_SECONDS = 0.001
"""What a cable may catch up on, where its thread was woken too late."""
DIAL_SECONDS = 5.0


class Switch:
    """The cables of all hosts.

    Args:
        bits_a_second: the rate of each, in each direction.
        late_seconds: how much later than at this rate everything arrives.
    """

    def __init__(self, bits_a_second: float, late_seconds: float = 0.0) -> None:
        self._rate, self.late_seconds = bits_a_second / 8, late_seconds
        self._lock = threading.Lock()
        self._free_at: dict[tuple[str, str], float] = {}
        self.moved = 0

    def delay(self, sender: str, receiver: str, count: int) -> float:
        """Take so many bytes, and return how many seconds from now the last of them arrives."""
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
    """Move all that comes from one to the other, until one of them closes.

    Args:
        switch: says when.
        names: of the hosts of both.
        source: where it comes from.
        target: where it goes.
    """
    out_of_pipe, into_pipe = os.pipe()
    fcntl.fcntl(into_pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        while count := os.splice(source.fileno(), into_pipe, PIECE):
            time.sleep(switch.delay(*names, count))
            while count:
                count -= os.splice(out_of_pipe, target.fileno(), count)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one side is gone, and the other has to see it
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(out_of_pipe)
        os.close(into_pipe)


def forward_late(
    switch: Switch, names: tuple[str, str], source: socket.socket, target: socket.socket
) -> None:
    """Do what `forward` does, but let everything arrive later; what is on its way is kept."""
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
    """Connect who has dialled with the host that it meant; close it where nobody is there."""
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
    """Forward what dials this server, for ever."""
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
