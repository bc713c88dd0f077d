"""Measures the accuracy of averaging weights every H steps: `python -m benchmarks.fewer_sums`.

It trains `digits` and a small language model, with Adam and with SGD with momentum, on two and four
workers. Each H is compared with exact training (1) after the same number of examples. The table has
the mean over the seeds. For H above 1, it also has the mean difference from the exact run of the
same seed, and the standard deviation of these differences. All workers of a case are processes in
one container, which meet on 127.0.0.1.
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

PREDICTED = (
    "up to 64 within 0.5 points of accuracy, or 1 % of the loss, with either optimizer, on two and "
    "four workers"
)
EVERY = [1, 4, 16, 64]
WORKERS = [2, 4]
SEEDS = [1, 2, 3, 4, 5]
TASKS = ["digits", "language"]
SCRIPT = Path(__file__).with_name("fewer_sums_script.py")
STORIES = Path(__file__).parent.parent / "examples/language-model/stories.py"
# Starts the workers, and prints the chief's last line.
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


def results(image: str, task: str, workers: int, every: int, seeds: list[int]) -> dict[str, float]:
    """Return the result of each optimizer and seed: "OPTIMIZER SEED" -> result.

    Raises:
        subprocess.CalledProcessError: a worker failed; its output was printed.
    """
    asked = ["docker", "inspect", "--format", "{{json .Config.Entrypoint}}", image]
    launcher = json.loads(subprocess.check_output(asked))
    entrypoint = launcher[launcher.index("--") + 1 :]  # without tini, which runs once, as PID 1
    command = ["python", "/script.py", task, *map(str, seeds)]
    variables = SETTINGS | {"TRAINER_SYNC_EVERY": str(every)}
    given = [item for name, value in variables.items() for item in ("--env", f"{name}={value}")]
    output = subprocess.check_output(
        [
            *("docker", "run", "--rm", "--init", "--network", "none", "--entrypoint", "python"),
            *("--volume", f"{SCRIPT}:/script.py:ro"),
            *("--volume", f"{STORIES}:/stories.py:ro", *given, image, "-c", START),
            *map(json.dumps, (entrypoint, workers, command)),
        ],
        text=True,
    )
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def cell(exact: dict[str, float], found: dict[str, float], optimizer: str) -> str:
    """Return the mean of an optimizer's results, and its difference from exact training."""
    names = [name for name in found if name.startswith(optimizer)]
    mean = statistics.mean(found[name] for name in names)
    if found is exact:
        return f"{mean:.3f}"
    differences = [found[name] - exact[name] for name in names]
    spread = statistics.stdev(differences) if len(differences) > 1 else 0.0
    return f"{mean:.3f} ({statistics.mean(differences):+.3f} ± {spread:.3f})"


def main(
    image: str, tasks: list[str], workers: list[int], every: list[int], seeds: list[int]
) -> None:
    """Measure and print the table."""
    print(f"predicted: {PREDICTED}\n")
    print(f"| task, optimizer, workers | {' | '.join(map(str, every))} |")
    print(f"| --- |{' --- |' * len(every)}", flush=True)
    for task in tasks:
        for count in workers:
            found = [results(image, task, count, one, seeds) for one in every]
            for optimizer in dict.fromkeys(name.split()[0] for name in found[0]):
                cells = " | ".join(cell(found[0], one, optimizer) for one in found)
                print(f"| {task}, {optimizer}, {count} | {cells} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fewer_sums", description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    for name, known in (("workers", WORKERS), ("every", EVERY), ("seeds", SEEDS)):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=known)
    chosen = parser.parse_args()
    wanted = os.environ.get("IMAGE", "cluster-trainer:cpu")
    main(wanted, chosen.tasks, chosen.workers, chosen.every, chosen.seeds)
