"""Limits the rate at which a container sends, like a slow network.

The kernel's token bucket filter (tc-tbf(8)) limits it. A program in the image sets the filter over
netlink, so no tool is needed. The program runs in a second container, which shares the first
container's network and has the right to change it.
"""

import socket
import struct
import sys

RTM_NEWQDISC, NLMSG_ERROR = 36, 2  # linux/rtnetlink.h, linux/netlink.h
FLAGS = 0x1 | 0x4 | 0x400 | 0x100  # request, acknowledge, create, replace
ROOT = 0xFFFFFFFF  # this and the following are from linux/pkt_sched.h
KIND, OPTIONS = 1, 2
PARAMETERS, BURST = 1, 6
ETHERNET = 1
BURST_BYTES, QUEUE_BYTES = 32_768, 262_144
DEVICE = "eth0"
"""Docker's name for a container's first network."""


def limit(container, bench, bits_per_second):
    """Limit the rate at which a running container sends, from now on."""
    program = bench.start(
        *("-c", open(__file__, encoding="utf-8").read(), str(bits_per_second)),  # noqa: SIM115, PTH123
        entrypoint="python",
        user="0",
        cap_add=["NET_ADMIN"],
        network_mode=f"container:{container.id}",
    )
    try:
        code = program.wait(timeout=60)["StatusCode"]
        assert code == 0, program.logs().decode()
    finally:
        program.remove(force=True)


def tell_kernel(bytes_per_second):
    """Limit the rate at which this machine sends through DEVICE."""
    rate = struct.pack("BBHhHI", 0, ETHERNET, 0, 0, 0, bytes_per_second)
    no_peak = bytes(len(rate))
    parameters = rate + no_peak + struct.pack("III", QUEUE_BYTES, 0, 0)
    options = attribute(PARAMETERS, parameters) + attribute(BURST, struct.pack("I", BURST_BYTES))
    place = struct.pack("BxxxiIII", 0, socket.if_nametoindex(DEVICE), 0, ROOT, 0)
    content = place + attribute(KIND, b"tbf\0") + attribute(OPTIONS, options)
    header = struct.pack("IHHII", 16 + len(content), RTM_NEWQDISC, FLAGS, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(header + content)
        answer = kernel.recv(4096)
    _, kind, _, _, _, error = struct.unpack_from("IHHIIi", answer)
    if kind != NLMSG_ERROR or error:
        sys.exit(f"the kernel has answered {kind}, {-error}")


def attribute(kind, content):
    """Return an attribute of a netlink message."""
    return struct.pack("HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


if __name__ == "__main__":
    tell_kernel(int(sys.argv[1]) // 8)
