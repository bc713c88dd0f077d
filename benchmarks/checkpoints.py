"""Measures the cost of checkpoints: mnist_cnn with and without them, in turn.

The pixels are random, in MNIST's shapes, because the time does not depend on them. Each worker has
one thread, and is pinned to its own processor.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PREDICTED = "every 200 steps (the default) under 3 % (the issue's bound); every 20 under 15 %"
PAIRS = {200: 24, 20: 50}
BLOCKS = Path(__file__).with_name("checkpoint_blocks.py")
DATA = """
import numpy as np

def load():
    noise = np.random.default_rng(0)
    make = lambda count: (
        noise.integers(0, 256, [count, 28, 28, 1], dtype=np.uint8),
        noise.integers(0, 10, count),
    )
    return make(60_000), make(1_000)
"""
SETTINGS = {
    "PYTHONPATH": "/workspace",
    "TRAINER_DATASET": "made_up:load",
    "TRAINER_PER_REPLICA_BATCH_SIZE": "64",
    "TRAINER_THREADS": "1",
}
# Runs in the container: measures the parts of a checkpoint. Training waits only for the copy.
PARTS = """
import json, time
from pathlib import Path
import numpy as np
from cluster_trainer.checkpoints.checkpoint import Checkpoint
from cluster_trainer.checkpoints.store import Store

def seconds(function):
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result

found = {}
for weights in (347_146, 25_600_000):
    # Adam keeps two more of each weight.
    arrays = [np.random.default_rng(0).random(weights, np.float32) for _ in range(3)]
    for step in range(1, 6):
        copy, copies = seconds(lambda: [array.copy() for array in arrays])
        made = Checkpoint(step, step, {}, {}, ["a", "b", "c"], copies)
        form, content = seconds(made.to_bytes)
        write, _ = seconds(lambda: Store(Path("/runs/parts")).write(step, content))
        found.setdefault(f"{weights:,}", []).append((len(content), copy, form, write))
print(json.dumps(found))
"""


def main(image: str) -> None:
    """Measure and print both tables."""
    print_blocks(image)
    print()
    print_parts(image)


def print_blocks(image: str) -> None:
    """Print the time of an interval's steps, with a checkpoint and without."""
    print(f"predicted: {PREDICTED}\n")
    print("| workers | steps | without | with a checkpoint | more | middle half of the pairs |")
    print("| --- | --- | --- | --- | --- | --- |")
    for workers in (1, 2):
        for steps, pairs in PAIRS.items():
            seconds = measure(image, workers, steps, pairs)
            ratios = [a / b for a, b in zip(seconds["with"], seconds["without"], strict=True)]
            low, middle, high = (percent(ratio) for ratio in statistics.quantiles(ratios, n=4))
            cells = [f"{statistics.median(seconds[kind]):.3f} s" for kind in ("without", "with")]
            print(f"| {workers} | {steps} | {' | '.join(cells)} | {middle} | {low} to {high} |")


def percent(ratio: float) -> str:
    """Return how far a ratio is above 1, in percent."""
    return f"{100 * (ratio - 1):+.1f} %"


def print_parts(image: str) -> None:
    """Print the time of each part of one checkpoint."""
    print("| weights | file | copied (training waits) | serialised | checked and written |")
    print("| --- | --- | --- | --- | --- |")
    for weights, measured in parts(image).items():
        size, *times = map(statistics.median, zip(*measured, strict=True))
        cells = " | ".join(f"{1000 * seconds:.1f} ms" for seconds in times)
        print(f"| {weights} | {size / 1e6:.1f} MB | {cells} |")


def parts(image: str) -> dict[str, list[list[float]]]:
    """Return the checkpoints of each number of weights: bytes, and the seconds of each part."""
    with tempfile.TemporaryDirectory() as folder:
        mine = [f"--volume={folder}:/runs", f"--user={os.getuid()}:{os.getgid()}"]
        command = ["docker", "run", "--rm", *mine, "--entrypoint=python", image, "-c", PARTS]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


def measure(image: str, workers: int, steps: int, pairs: int) -> dict[str, list[float]]:
    """Train on this number of containers; return the seconds of the blocks with and without."""
    network = f"ctb-{os.getpid()}-{time.monotonic_ns()}"
    names = [f"{network}-{index}" for index in range(workers)]
    hosts = ",".join(f"{name}:2222" for name in names)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "made_up.py").write_text(DATA)
        Path(folder, BLOCKS.name).write_text(BLOCKS.read_text())
        docker("network", "create", network)
        try:
            for index, name in enumerate(names):
                own = {"WORKER_HOSTS": hosts, "WORKER_INDEX": str(index)}
                own |= {"TRAINER_CHECKPOINT_STEPS": str(steps)}
                options = [f"--name={name}", f"--network={network}", f"--cpuset-cpus={index}"]
                command = ["python", f"/workspace/{BLOCKS.name}", str(pairs)]
                start(image, folder, SETTINGS | own, options, command)
            for name in names:
                if docker("wait", name).strip() != "0":
                    raise RuntimeError(docker("logs", name))
            return json.loads(docker("logs", names[0]).splitlines()[-1])
        finally:
            docker("rm", "--force", *names)
            docker("network", "rm", network)


def start(
    image: str,
    folder: str,
    settings: Mapping[str, str],
    options: Sequence[str],
    command: Sequence[str],
) -> None:
    """Start one worker. A folder of the host has its results and the programs."""
    variables = [f"--env={name}={text}" for name, text in settings.items()]
    volumes = [f"--volume={folder}:/workspace:ro", f"--volume={folder}:/runs"]
    user = f"--user={os.getuid()}:{os.getgid()}"
    docker("run", "--detach", user, *volumes, *variables, *options, image, *command)


def docker(*arguments: str) -> str:
    """Run a docker command and return its output, with standard error at the end."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    return done.stderr + done.stdout
