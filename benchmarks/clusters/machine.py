"""Describes the machine of a measurement."""

import datetime as dt
import os
import platform
import re
from pathlib import Path

from docker import DockerClient


def described(client: DockerClient, image: str) -> str:
    """Return a description of this machine, its engine and the image, in one paragraph."""
    engine = client.info()
    found = client.images.get(image)
    labels = found.labels or {}
    revision = labels.get("org.opencontainers.image.revision", "unknown")
    return (
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} processors "
        f"({processor()}), {engine['MemTotal'] / 2**30:.0f} GiB, Linux {platform.release()}, "
        f"Docker {engine['ServerVersion']} with {engine['Driver']}; "
        f"{image}, revision {revision[:12]}; {load()}"
    )


def load() -> str:
    """Return the machine's load averages."""
    return "load average {:.1f}, {:.1f}, {:.1f}".format(*os.getloadavg())


def processor() -> str:
    """Return the name of the first processor."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()
