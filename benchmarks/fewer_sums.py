"""What averaging weights every H steps costs in accuracy: `python -m benchmarks.fewer_sums`.

`digits` with Adam and with SGD with momentum, on two and four workers, each H against exact
training (1): the mean test accuracy over the seeds. All workers of a case are processes in one
container, which meet on 127.0.0.1.
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

PREDICTED = (
    "up to 16 within 0.5 points of exact training, with either optimizer, on two and four workers"
)
EVERY = [1, 4, 16, 64]
WORKERS = [2, 4]
SEEDS = [1, 2, 3]
SCRIPT = Path(__file__).with_name("fewer_sums_script.py")
# Starts the workers, and prints what the chief's last line says.
START = """
import json, os, subprocess, sys

entrypoint, count, command = (json.loads(one) for one in sys.argv[1:])
hosts = ",".join(f"127.0.0.1:{2222 + index}" for index in range(count))

def start(index):
    place = {"WORKER_HOSTS": hosts, "WORKER_INDEX": f"{index}", "TRAINER_RUN_DIR": "/tmp"}
    log = open(f"/tmp/{index}.log", "w")
    return subprocess.Popen([*entrypoint, *command], env=os.environ | place, stdout=log, stderr=log)

codes = [worker.wait() for worker in [start(index) for index in range(count)]]
logs = [open(f"/tmp/{index}.log").read() for index in range(count)]
if any(codes):
    sys.exit("".join(logs))
print([line for line in logs[0].splitlines() if line.startswith("{")][-1])
"""
SETTINGS = {
    "TRAINER_COLLECTIVES": "ring",
    "TRAINER_CHECKPOINT_STEPS": "0",
    "TRAINER_THREADS": "1",
    "MAX_RESTARTS": "0",
}


def accuracies(image: str, workers: int, every: int, seeds: list[int]) -> dict[str, float]:
    """Return what each optimizer and seed has come to: "OPTIMIZER SEED" -> accuracy.

    Raises:
        subprocess.CalledProcessError: a worker has failed; its output was printed.
    """
    asked = ["docker", "inspect", "--format", "{{json .Config.Entrypoint}}", image]
    launcher = json.loads(subprocess.check_output(asked))
    entrypoint = launcher[launcher.index("--") + 1 :]  # without tini, which is there once
    command = ["python", "/script.py", *map(str, seeds)]
    variables = SETTINGS | {"TRAINER_SYNC_EVERY": str(every)}
    given = [item for name, value in variables.items() for item in ("--env", f"{name}={value}")]
    output = subprocess.check_output(
        [
            *("docker", "run", "--rm", "--init", "--network", "none", "--entrypoint", "python"),
            *("--volume", f"{SCRIPT}:/script.py:ro", *given, image, "-c", START),
            *map(json.dumps, (entrypoint, workers, command)),
        ],
        text=True,
    )
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def main(image: str, workers: list[int], every: list[int], seeds: list[int]) -> None:
    """Measure and print the table."""
    print(f"predicted: {PREDICTED}\n")
    print(f"| optimizer, workers | {' | '.join(map(str, every))} |")
    print(f"| --- |{' --- |' * len(every)}")
    for count in workers:
        found = [accuracies(image, count, one, seeds) for one in every]
        for optimizer in dict.fromkeys(name.split()[0] for name in found[0]):
            means = [
                statistics.mean(value for name, value in one.items() if name.startswith(optimizer))
                for one in found
            ]
            cells = " | ".join(f"{mean:.3f}" for mean in means)
            print(f"| {optimizer}, {count} | {cells} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fewer_sums", description=__doc__)
    for name, known in (("workers", WORKERS), ("every", EVERY), ("seeds", SEEDS)):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=known)
    chosen = parser.parse_args()
    wanted = os.environ.get("IMAGE", "cluster-trainer:cpu")
    main(wanted, chosen.workers, chosen.every, chosen.seeds)
