"""Measures sums of ranks on this machine: processes on the loopback interface, pinned in turn.

The loopback interface is only memory. If there are more ranks than processors, ranks share them.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from entrypoint.network.cost import (
    NEAR_BYTES,
    NUMBER_BYTES,
    Costs,
    Network,
    sum_seconds,
    way_of,
)

TRAINER = Path(__file__).parents[2] / "trainer"
SECONDS = 300
Key = tuple[int, int, bool]
"""The number of ranks, the bytes, and whether they are sent as bfloat16."""
# Runs as each rank. Prints {"size wire": the seconds of a sum}: the 10th percentile, which other
# programs on the machine affect least.
RANK = """
import json, os, socket, sys, time
import numpy as np
from cluster_trainer.collectives.ring.ring import Ring

rank, size, left, right = map(int, sys.argv[1:5])
os.sched_setaffinity(0, {rank % os.cpu_count()})
ring = Ring(rank, size, 1, socket.socket(fileno=left), socket.socket(fileno=right))
found = {}
for wire in ("float32", "bfloat16"):
    for count in json.loads(sys.argv[5]):
        values = np.random.default_rng(rank).standard_normal(count // 4, np.float32)
        times = max(10, min(300, 80_000_000 // (count * size)))
        seconds = []
        for turn in range(times + 2):
            ring.barrier()
            begin = time.perf_counter()
            ring.all_reduce(values, wire=wire)
            seconds.append(time.perf_counter() - begin)
        found[f"{count} {wire}"] = float(np.quantile(seconds[2:], 0.1))
ring.barrier()
ring.close()
print(json.dumps(found))
"""


def measure(ranks: int, sizes: tuple[int, ...]) -> dict[Key, float]:
    """Return the seconds of a sum over this number of ranks: the median over ranks."""
    pairs = [_pair() for _ in range(ranks)]
    started = []
    for rank in range(ranks):
        ends = pairs[rank - 1][1].fileno(), pairs[rank][0].fileno()
        command = [sys.executable, "-c", RANK, *map(str, (rank, ranks, *ends)), json.dumps(sizes)]
        environ = {**os.environ, "PYTHONPATH": str(TRAINER), "OMP_NUM_THREADS": "1"}
        started.append(
            subprocess.Popen(command, env=environ, pass_fds=ends, stdout=subprocess.PIPE, text=True)
        )
    for end in (end for pair in pairs for end in pair):
        end.close()
    said = [json.loads(process.communicate(timeout=SECONDS)[0]) for process in started]
    return {
        (ranks, size, wire == "bfloat16"): statistics.median(one[f"{size} {wire}"] for one in said)
        for size in sizes
        for wire in ("float32", "bfloat16")
    }


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        end = socket.create_connection(server.getsockname())
        return end, server.accept()[0]


def fitted(found: Mapping[Key, float], processors: int) -> Costs:
    """Return the costs that fit the measured sums best, by relative error.

    Args:
        found: sums of at least two numbers of ranks and two sizes.
        processors: the number of processors to which the ranks were pinned in turn.
    """
    rows, ones = [], []
    for (ranks, size, bfloat16), seconds in found.items():
        way = way_of(ranks, size, bfloat16=bfloat16)
        is_far = size > NEAR_BYTES
        near, far = (0.0, way.bytes) if is_far else (way.bytes, 0.0)
        parts = [1.0, way.hops, near, far, size / NUMBER_BYTES if bfloat16 else 0.0]
        shared_by = max(1.0, ranks / processors)
        rows.append([part * shared_by / seconds for part in parts])
        ones.append(1.0)
    numbers = _not_negative(np.array(rows), np.array(ones))
    return Costs(*(float(number) for number in numbers))


def _not_negative(rows: np.ndarray, ones: np.ndarray) -> np.ndarray:
    """Return the least-squares solution with negative values set to 0."""
    kept = list(range(rows.shape[1]))
    while True:
        scale = np.maximum(np.abs(rows[:, kept]).max(axis=0), 1e-300)
        solution = np.linalg.lstsq(rows[:, kept] / scale, ones, rcond=None)[0] / scale
        if (solution >= 0).all():
            break
        kept.pop(int(np.argmin(solution * scale)))
    found = np.zeros(rows.shape[1])
    found[kept] = solution
    return found


def predicted(costs: Costs, key: Key, processors: int) -> float:
    """Return the model's time for ranks that share this machine's processors."""
    ranks, size, bfloat16 = key
    shared = costs.shared(ranks / processors)
    return sum_seconds(shared, Network(), ranks, size, bfloat16=bfloat16)
