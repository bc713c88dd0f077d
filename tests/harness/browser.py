"""A real browser in a container, for the pages that the image makes and serves."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docker.models.containers import Container

from harness.ended import Ended

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "tests/browser"
IMAGE = "cluster-trainer-browser:bookworm"
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
BUILD_SECONDS = 600


def build_browser() -> str:
    """Build the browser's image, which stays on the engine; return its name.

    This takes one or two minutes, and 0.7 GB.
    """
    base = subprocess.run(
        ["scripts/base-image.sh"], cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    given = [f"BASE_IMAGE={base}", *(name for name in PROXIES if os.environ.get(name))]
    arguments = [part for one in given for part in ("--build-arg", one)]
    subprocess.run(
        ["docker", "build", "--quiet", *arguments, "--tag", IMAGE, "-"],
        input=(FOLDER / "Dockerfile").read_bytes(),
        check=True,
        timeout=BUILD_SECONDS,
    )
    return IMAGE


def look(
    run_to_end: Callable[..., Ended], *arguments: str, network: Container | None, folder: Path
) -> Any:
    """Open an address in a browser, and return the result; see tests/browser/look.py.

    Args:
        run_to_end: runs a container until it ends.
        arguments: the arguments of look.py.
        network: the container whose network the browser shares; None: no network.
        folder: the folder that is mounted at /pages, where the browser may write.
    """
    ended = run_to_end(
        *("python3", "/look.py", *arguments),
        image=IMAGE,
        network_mode=f"container:{network.id}" if network else "none",
        volumes=[f"{FOLDER}/look.py:/look.py:ro", f"{folder}:/pages"],
        tmpfs={"/tmp": "mode=1777"},
        environment={"HOME": "/tmp"},
    )
    assert ended.code == 0, ended.err
    return json.loads(ended.out)
