"""Runs all parts of the self-test, each in a process of its own, and prints the table."""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cluster_trainer.data.memory import available_bytes
from cluster_trainer.problems import ExitCode
from cluster_trainer.processors import available_cpus
from cluster_trainer.selftest.conclusion import conclusion
from cluster_trainer.selftest.machine import machine_rows, read_warnings
from cluster_trainer.selftest.parts import (
    GPUS,
    MEETING,
    NETWORK,
    NO_MACHINES,
    Part,
    Place,
    judged,
    parts_of,
    run_part,
)
from cluster_trainer.selftest.running import ALONE, ENTRYPOINT, RESULT, Bench
from cluster_trainer.selftest.table import Row, State, as_json, as_text, exit_code

LIMIT_SECONDS, LIMIT_ON_GPUS_SECONDS = 120, 300
"""Newer GPUs compile TensorFlow's kernels at the first start, which takes minutes."""
MEETING_SECONDS = 60
"""What a meeting may take in addition to RENDEZVOUS_TIMEOUT."""
STOPPED = 128


@dataclass(frozen=True)
class Explained:
    """What the entrypoint has made of the variables.

    Attributes:
        name: of this worker.
        workers: how many machines train together; 1 if this one trains alone.
        timeout_seconds: how long a meeting may take.
    """

    name: str
    workers: int
    timeout_seconds: float


class RefusedError(Exception):
    """The entrypoint does not start with these variables; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Try everything that can be tried here; print the table, and return the exit code."""
    given = _read(arguments)
    signal.signal(signal.SIGTERM, _stop)
    try:
        cluster = _explained(environ)
        with tempfile.TemporaryDirectory(prefix="selftest-") as folder:
            rows = _tried(cluster, Path(folder), environ, given.limit)
    except RefusedError as error:
        return error.code
    except KeyboardInterrupt:
        return STOPPED + signal.SIGINT
    title = _title(cluster, environ)
    write = as_json if given.json else as_text
    print(write(title, rows, conclusion(rows)))  # noqa: T201
    return exit_code(rows)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.BAD_CONFIGURATION, f"{self.prog}: {message}\n")


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="selftest", description="Tries this machine's devices and its network.")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("--limit", type=float, help="seconds that a part may take")
    return parser.parse_args(arguments)


def _stop(number: int, _: object) -> NoReturn:
    raise SystemExit(STOPPED + number)


def _explained(environ: Mapping[str, str]) -> Explained:
    """Ask the entrypoint who the machines are.

    Raises:
        RefusedError: it refuses the variables, and has printed why.
    """
    command = [*ENTRYPOINT, "explain", "--json", "true"]
    answer = subprocess.run(command, env=dict(environ), stdout=subprocess.PIPE, check=False)  # noqa: S603
    if answer.returncode:
        raise RefusedError(answer.returncode)
    document = json.loads(answer.stdout)
    task, jobs = document["task"], document["cluster"]
    workers = sum(map(len, jobs.values())) if task["type"] in jobs else 1
    timeout = float(document["values"]["RENDEZVOUS_TIMEOUT"]["value"])
    return Explained(f"{task['type']}-{task['index']}", workers, timeout)


def _tried(
    cluster: Explained, folder: Path, environ: Mapping[str, str], limit_seconds: float | None
) -> list[Row]:
    """Run all parts, and return their rows."""
    bench = Bench(folder, environ, limit_seconds or LIMIT_SECONDS)
    rows = [_told(_met(cluster, bench))]
    place = Place(0, cluster.workers, folder, bench.limit_seconds)
    about = _about_machine(place, bench, environ)
    rows += map(_told, about)
    gpus = len(about[0].facts.get("gpus", ()))
    if gpus:
        bench = Bench(folder, environ, limit_seconds or LIMIT_ON_GPUS_SECONDS)
    place = Place(gpus, cluster.workers, folder, bench.limit_seconds)
    for part in parts_of(place):
        rows.append(_told(run_part(bench, part, rows)))
    return rows


def _met(cluster: Explained, bench: Bench) -> Row:
    """Meet the other machines, which may be started later than this one."""
    part = Part(
        name=MEETING,
        command=["true"],
        found=lambda _: f"{cluster.workers} machines",
        advice=NETWORK,
        why_not="" if cluster.workers > 1 else NO_MACHINES,
    )
    if part.why_not:
        return run_part(bench, part, [])
    limit = cluster.timeout_seconds + MEETING_SECONDS
    outcome = bench.run(part.name, part.command, {}, limit_seconds=limit, shows=True)
    return judged(part, outcome, limit)


def _about_machine(place: Place, bench: Bench, environ: Mapping[str, str]) -> list[Row]:
    """Return the rows about the machine; the first one is about its GPUs."""
    start = bench.run("start", ["true"], {**ALONE, "LOG_FORMAT": "json"})
    part = Part(
        name=GPUS,
        command=place.script("devices.py", RESULT),
        found=lambda facts: f"{len(facts['gpus'])}",
        settings=ALONE,
    )
    limit = max(bench.limit_seconds, LIMIT_ON_GPUS_SECONDS)
    outcome = bench.run(part.name, part.command, part.settings, limit_seconds=limit)
    return machine_rows(environ, read_warnings(start.log), judged(part, outcome, limit))


def _told(row: Row) -> Row:
    """Print a row while the others are still to come."""
    found = f": {row.found}" if row.state != State.HELD else ""
    print(f"selftest: {row.name}: {row.state}{found}", file=sys.stderr, flush=True)  # noqa: T201
    return row


def _title(cluster: Explained, environ: Mapping[str, str]) -> str:
    version = environ.get("CLUSTER_TRAINER_VERSION", "of a checkout")
    return (
        f"cluster-trainer {version}, {cluster.name} of {cluster.workers}: "
        f"{available_cpus()} processors, {available_bytes() / 2**30:.1f} GiB of free memory, "
        f"{platform.system()} {os.uname().release} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )
