"""Measures the gain of a second worker if input is slow: `python -m benchmarks.slow_input`.

A `map` of a `tf.data` pipeline waits 5 ms for each example. The network is small, and has MNIST's
shapes. There are three cases: one worker, two workers that prepare their own rows, and two that
prepare all rows, because a `filter` comes after the `map`. The workers are processes in one
container, each on its own processor. The cases take turns. The first epoch of each does not count.
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

PREDICTED = "two workers with their own rows 1.9 times one, with all rows 1.0 times"
ROUNDS = 3
CASES = {
    "one worker": (1, "own"),
    "two workers, own rows": (2, "own"),
    "two workers, all rows": (2, "all"),
}
SCRIPT = Path(__file__).with_name("slow_input_script.py")
# Starts the workers of a case, and prints the chief's last line.
START = """
import json, os, subprocess, sys

entrypoint, count, rows = (json.loads(one) for one in sys.argv[1:])
hosts = ",".join(f"127.0.0.1:{2222 + index}" for index in range(count))

def start(index):
    place = {"WORKER_HOSTS": hosts, "WORKER_INDEX": f"{index}", "TRAINER_RUN_DIR": "/tmp"}
    command = [*entrypoint, "python", "/script.py", rows]
    log = open(f"/tmp/{index}.log", "w")
    return subprocess.Popen(
        command, env=os.environ | (place if count > 1 else {}), stdout=log, stderr=log,
        preexec_fn=lambda: os.sched_setaffinity(0, {index}),
    )

codes = [worker.wait() for worker in [start(index) for index in range(count)]]
logs = [open(f"/tmp/{index}.log").read() for index in range(count)]
if any(codes):
    sys.exit("".join(logs))
print([line for line in logs[0].splitlines() if line.startswith("[")][-1])
"""
SETTINGS = {"TRAINER_CHECKPOINT_STEPS": "0", "TRAINER_THREADS": "1", "MAX_RESTARTS": "0"}


def rate(image: str, workers: int, rows: str) -> float:
    """Return a case's examples/s, over all workers.

    Raises:
        subprocess.CalledProcessError: a worker failed; its output was printed.
    """
    asked = ["docker", "inspect", "--format", "{{json .Config.Entrypoint}}", image]
    launcher = json.loads(subprocess.check_output(asked))
    entrypoint = launcher[launcher.index("--") + 1 :]  # without tini, which runs once, as PID 1
    given = [item for name, value in SETTINGS.items() for item in ("--env", f"{name}={value}")]
    output = subprocess.check_output(
        [
            *("docker", "run", "--rm", "--init", "--network", "none", "--entrypoint", "python"),
            *("--volume", f"{SCRIPT}:/script.py:ro", *given, image, "-c", START),
            *map(json.dumps, (entrypoint, workers, rows)),
        ],
        text=True,
    )
    return statistics.median(json.loads(output.splitlines()[-1]))


def main(image: str, rounds: int) -> None:
    """Measure and print the table."""
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(rounds):
        for name, case in CASES.items():
            found[name].append(rate(image, *case))
    one = statistics.median(found["one worker"])
    print(f"predicted: {PREDICTED}\n")
    print("| case | examples/s, median | lowest | highest | of one worker |")
    print("| --- | --- | --- | --- | --- |")
    for name, rates in found.items():
        middle = statistics.median(rates)
        cells = f"{middle:.0f} | {min(rates):.0f} | {max(rates):.0f} | {middle / one:.2f}"
        print(f"| {name} | {cells} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow_input", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    main(os.environ.get("IMAGE", "cluster-trainer:cpu"), parser.parse_args().rounds)
