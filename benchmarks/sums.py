"""Measures the cost of a sum over workers: the ring beside TensorFlow's collectives.

Each worker is a container with one processor, on a bridge network. All cases take turns in the same
processes, in a compiled loop, like steps.
"""

import json
import os
import statistics
import subprocess
import sys
import uuid
from pathlib import Path

PREDICTED = "the ring never slower than TensorFlow's collectives, from 64 KB to 100 MB"
SIZES = (65_536, 262_144, 1_390_000, 9_000_000, 25_000_000, 100_000_000)
WORKERS = tuple(map(int, os.environ.get("WORKERS", "2 3 4").split()))
ROUNDS = int(os.environ.get("ROUNDS", "7"))
SECONDS = 900
WORKER = Path(__file__).with_name("sum_workers.py")
COLUMNS = {
    "TensorFlow": "tensorflow float32",
    "ring": "ring float32",
    "TensorFlow, bfloat16": "tensorflow bfloat16",
    "ring, bfloat16": "ring bfloat16",
    "ring, bare": "bare float32",
    "ring, bare, bfloat16": "bare bfloat16",
}


def main(image: str) -> None:
    """Measure and print a table."""
    print(f"predicted: {PREDICTED}\n")
    print(f"| workers | MB | {' | '.join(COLUMNS)} | TensorFlow / ring | the same, bfloat16 |")
    print("| --- " * (len(COLUMNS) + 4) + "|")
    for workers in WORKERS:
        seconds = measure(image, workers)
        for size in SIZES:
            print(
                row(workers, size, {case: seconds[f"{case} {size}"] for case in COLUMNS.values()})
            )


def row(workers: int, size: int, seconds: dict[str, list[float]]) -> str:
    """Return a line: medians in ms, and the medians of the ratios within each round."""
    cells = [str(workers), f"{size / 1e6:.3g}"]
    cells += [f"{statistics.median(seconds[case]) * 1e3:.2f} ms" for case in COLUMNS.values()]
    for kind in ("float32", "bfloat16"):
        pairs = zip(seconds[f"tensorflow {kind}"], seconds[f"ring {kind}"], strict=True)
        cells.append(f"{statistics.median(theirs / ours for theirs, ours in pairs):.1f}")
    return f"| {' | '.join(cells)} |"


def measure(image: str, workers: int) -> dict[str, list[float]]:
    """Return the seconds of a sum in each round, by case and size."""
    name = f"cluster-trainer-sums-{uuid.uuid4().hex[:8]}"
    hosts = [f"{name}-{rank}" for rank in range(workers)]
    processors = os.cpu_count() or 1
    docker("network", "create", name)
    try:
        for rank, host in enumerate(hosts):
            place = ["--name", host, "--network", name, "--cpuset-cpus", str(rank % processors)]
            mounted = ["-v", f"{WORKER}:/sum_workers.py:ro", "--entrypoint", "python"]
            arguments = [str(rank), str(ROUNDS), json.dumps(SIZES), *hosts]
            docker("run", "-d", *place, *mounted, image, "/sum_workers.py", *arguments)
        ended = docker("wait", hosts[0])
        if ended.strip() != "0":
            sys.exit("\n".join(docker("logs", host, errors=subprocess.STDOUT) for host in hosts))
        return dict(json.loads(docker("logs", hosts[0]).splitlines()[-1]))
    finally:
        docker("rm", "-f", "-v", *hosts)
        docker("network", "rm", name)


def docker(*arguments: str, errors: int = subprocess.DEVNULL) -> str:
    """Return the output of Docker's command line."""
    command = ["docker", *arguments]
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, check=False, timeout=SECONDS
    )
    return ended.stdout


if __name__ == "__main__":
    main(os.environ.get("IMAGE", "cluster-trainer:cpu"))
