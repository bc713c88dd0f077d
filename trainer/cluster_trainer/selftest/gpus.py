"""Information about a machine's GPUs: the answers of nvidia-smi, and the device files."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20.0
QUERY = (
    "--query-gpu=name,driver_version,compute_cap,memory.total,memory.used",
    "--format=csv,noheader,nounits",
)
DIRECT = ("topo", "-p2p", "r")
"""Prints a matrix: which GPU can read the memory of which other GPU."""
COLUMNS = QUERY[0].count(",") + 1
GPU = re.compile(r"GPU\d+")
FILE = re.compile(r"nvidia\d+")


@dataclass(frozen=True)
class Gpu:
    """A GPU, as nvidia-smi describes it. Unknown numbers are None.

    Attributes:
        name: the model, such as "NVIDIA H100 80GB HBM3".
        driver: the version of the driver.
        capability: the compute capability, such as "9.0".
        total_mib: the memory in MiB.
        used_mib: the memory that programs use now, in MiB.
    """

    name: str
    driver: str
    capability: str
    total_mib: int | None
    used_mib: int | None


def ask_nvidia_smi(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what nvidia-smi prints; "" if it is missing, fails, or takes over 20 s."""
    try:
        child = subprocess.Popen(  # noqa: S603  fixed arguments
            ["nvidia-smi", *arguments],  # noqa: S607  where the container runtime has put it
            env=dict(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        output, _ = child.communicate(timeout=SECONDS)
    except OSError:
        return ""
    except subprocess.TimeoutExpired:
        child.kill()  # without a wait: a broken GPU may hold it in the kernel for ever
        return ""
    return "" if child.returncode else output.decode(errors="replace")


def parse_gpus(text: str) -> list[Gpu]:
    """Return the GPUs in the output of QUERY, which has one line for each."""
    cells = [line.strip().rsplit(", ", COLUMNS - 1) for line in text.splitlines()]
    return [
        Gpu(name, driver, capability, _number(total), _number(used))
        for name, driver, capability, total, used in (row for row in cells if len(row) == COLUMNS)
    ]


def _number(text: str) -> int | None:
    """Return a number; None for texts such as "[N/A]"."""
    return int(text) if text.isdecimal() else None


def parse_direct(text: str) -> dict[tuple[int, int], str]:
    """Return the status of each pair of GPUs in the output of DIRECT: OK, or the reason.

    The matrix begins with a line of the GPUs' names. Its lines begin with a name, too.
    """
    lines = [line.split() for line in text.splitlines()]
    rows = [line[1:] for line in lines if len(line) > 1 and GPU.fullmatch(line[0])]
    rows = [row for row in rows if not GPU.fullmatch(row[0])]
    return {
        (first, second): status
        for first, row in enumerate(rows)
        for second, status in enumerate(row[: len(rows)])
        if first < second
    }


def count_files(folder: Path = Path("/dev")) -> int:
    """Return the number of GPUs in the container, by their device files."""
    return sum(1 for file in folder.iterdir() if FILE.fullmatch(file.name))
