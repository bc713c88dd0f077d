"""Whole clusters in one container: the workers are processes that meet on 127.0.0.1.

They compute the same as workers in separate containers. The image's entrypoint starts each worker,
as in a container.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.cluster import ClusterRun
from harness.ended import run_and_remove
from harness.packages import as_mounts
from harness.workbench import Workbench

MAX_SECONDS = 550  # a test may take 600 (pyproject.toml)
# Runs the cases one after the other, each on its own ports.
PROGRAM = """
import itertools, json, os, subprocess, sys

entrypoint, cases = map(json.loads, sys.argv[1:])
ports = itertools.count(2222)

def start(case, hosts, index):
    folder = f"/runs/{case['name']}"
    os.makedirs(folder, exist_ok=True)
    place = {"WORKER_HOSTS": ",".join(hosts), "WORKER_INDEX": f"{index}", "TRAINER_RUN_DIR": folder}
    environ = {**os.environ, "VERBOSE": "1", **case["settings"], **place}
    with open(f"{folder}/output-{index}.log", "wb") as log:
        command = [*entrypoint, *case["command"]]
        return subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT)

for case in cases:
    hosts = [f"127.0.0.1:{next(ports)}" for _ in range(case["workers"])]
    workers = [start(case, hosts, index) for index in range(len(hosts))]
    codes = [worker.wait() for worker in workers]
    with open(f"/runs/{case['name']}/codes.json", "w") as file:
        json.dump(codes, file)
"""


@dataclass(frozen=True)
class Case:
    """A cluster to run.

    Attributes:
        name: the name of its folder.
        workers: the number of workers.
        settings: the workers' variables.
        command: the command of each worker; empty: the trainer.
    """

    name: str
    workers: int
    settings: Mapping[str, str]
    command: Sequence[str] = ()


def run_cases(
    bench: Workbench, folder: Path, cases: Sequence[Case], volumes: Sequence[str] = ()
) -> dict[str, ClusterRun]:
    """Run clusters to their ends, and return them by name."""
    launcher = bench.inspect_image().attrs["Config"]["Entrypoint"]
    entrypoint = launcher[launcher.index("--") + 1 :]  # without tini, which already runs
    given = [json.dumps(entrypoint), json.dumps([asdict(case) for case in cases])]
    options = {"entrypoint": "python", "init": True, "network_mode": "none"}
    ended = run_and_remove(
        bench,
        *["-c", PROGRAM, *given],
        timeout_seconds=MAX_SECONDS,
        volumes=[f"{folder}:/runs", *volumes],
        mounts=as_mounts(bench.packages),
        **options,
    )
    assert ended.code == 0, ended.err
    return {case.name: _ended(folder / case.name) for case in cases}


def _ended(folder: Path) -> ClusterRun:
    codes = json.loads((folder / "codes.json").read_text())
    outputs = [file.read_text(errors="replace") for file in sorted(folder.glob("*.log"))]
    return ClusterRun(max(codes, key=abs), "".join(outputs), folder)  # -9: killed by a signal
