"""Runs all parts of the self-test, each in its own process, and prints the table."""

import argparse
import json
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from cluster_trainer.problems import ExitCode
from cluster_trainer.processors import available_cpus
from cluster_trainer.selftest.conclusion import conclusion
from cluster_trainer.selftest.machine import machine_rows, read_warnings
from cluster_trainer.selftest.part import ALONE, run_part
from cluster_trainer.selftest.parts import GPUS, Place, devices, meeting, parts_of
from cluster_trainer.selftest.running import ENTRYPOINT, Bench
from cluster_trainer.selftest.table import Row, State, as_json, as_text, exit_code

LIMIT_SECONDS, LIMIT_ON_GPUS_SECONDS = 120, 300
"""Newer GPUs compile TensorFlow's kernels at the first start, which takes minutes."""
STOPPED = 128


@dataclass(frozen=True)
class Explained:
    """The entrypoint's interpretation of the variables.

    Attributes:
        name: the name of this worker.
        workers: the number of machines that train together; 1 if this one trains alone.
        timeout_seconds: the time limit of a meeting.
    """

    name: str
    workers: int
    timeout_seconds: float


class RefusedError(Exception):
    """Nothing can be tested. The reason has been printed; `code` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run all tests that are possible here; print the table, and return the exit code."""
    given = _read(arguments)
    signal.signal(signal.SIGTERM, _stop)
    try:
        cluster = _explained(environ)
        with _new_folder() as folder:
            rows = _tried(cluster, Path(folder), environ, given.limit)
    except RefusedError as error:
        return error.code
    except KeyboardInterrupt:
        return STOPPED + signal.SIGINT
    title = _title(cluster, rows, environ)
    write = as_json if given.json else as_text
    print(write(title, rows, conclusion(rows)))  # noqa: T201
    return exit_code(rows)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.BAD_CONFIGURATION, f"{self.prog}: {message}\n")


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="selftest", description="Tests this machine's devices and network.")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("--limit", type=float, help="time limit of each part, in seconds")
    return parser.parse_args(arguments)


def _stop(number: int, _: object) -> NoReturn:
    raise SystemExit(STOPPED + number)


def _explained(environ: Mapping[str, str]) -> Explained:
    """Ask the entrypoint for this worker and its cluster.

    Raises:
        RefusedError: the entrypoint has refused the variables, and printed the reason.
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


def _new_folder() -> tempfile.TemporaryDirectory[str]:
    """Create the folder for all files of the test.

    Raises:
        RefusedError: no folder can be created. The reason has been printed.
    """
    try:
        return tempfile.TemporaryDirectory(prefix="selftest-")
    except OSError as error:
        print(f"selftest: {error.strerror}: add --tmpfs /tmp", file=sys.stderr)  # noqa: T201
        raise RefusedError(ExitCode.BAD_CONFIGURATION) from error


def _tried(
    cluster: Explained, folder: Path, environ: Mapping[str, str], limit_seconds: float | None
) -> list[Row]:
    """Run all parts, and return their rows."""
    bench = Bench(folder, environ, limit_seconds or LIMIT_SECONDS)
    rows = [_told(run_part(bench, meeting(cluster.workers, cluster.timeout_seconds)))]
    start = bench.run("start", ["true"], {**ALONE, "LOG_FORMAT": "json"}, bench.limit_seconds)
    place = Place(0, cluster.workers, folder)
    looked = run_part(bench, devices(place, limit_seconds or LIMIT_ON_GPUS_SECONDS))
    rows += map(_told, machine_rows(environ, read_warnings(start.log), looked))
    if gpus := len(looked.facts.get("gpus", ())):
        bench = replace(bench, limit_seconds=limit_seconds or LIMIT_ON_GPUS_SECONDS)
    for part in parts_of(replace(place, gpus=gpus)):
        rows.append(_told(run_part(bench, part, rows)))
    return rows


def _told(row: Row) -> Row:
    """Print the result of a part at once, before the table."""
    found = f": {row.found}" if row.state != State.HELD else ""
    print(f"selftest: {row.name}: {row.state}{found}", file=sys.stderr, flush=True)  # noqa: T201
    return row


def _title(cluster: Explained, rows: Sequence[Row], environ: Mapping[str, str]) -> str:
    version = environ.get("CLUSTER_TRAINER_VERSION", "of a checkout")
    facts = next(row.facts for row in rows if row.name == GPUS)
    return (
        f"cluster-trainer {version}, {cluster.name} of {cluster.workers}: "
        f"{available_cpus()} processors, {platform.system()} {platform.release()} "
        f"{platform.machine()}, Python {platform.python_version()}, "
        f"TensorFlow {facts.get('tensorflow', 'unknown')}"
    )
