"""Measures the time before your command starts, and before the trainer trains.

Each case is a whole process in one container of the image. The cases take turns, so a change of the
machine's speed affects all of them. The last two cases of the entrypoint's table are other
launchers. For these, only the import of their main module is measured, in the same container.
"""

import json
import subprocess
import sys
from pathlib import Path

PREDICTED = "entrypoint: at most 0.25 s beyond a bare Python (the issue's bound)"
IMPORT_PREDICTED = "without collection at least a tenth less, with TFDS a tenth more than that"
ROUNDS = 15
IMPORT_ROUNDS = 9
TOOLS = Path(".build/benchmarks")
# Without the gate, which waits for the other worker; benchmarks/rendezvous.py measures it.
CLUSTER = [
    "WORKER_HOSTS=10.1.10.58:2222,10.1.10.250:2222",
    "WORKER_INDEX=1",
    "RENDEZVOUS_TIMEOUT=0",
]
ENTRYPOINT = ["/opt/venv/bin/python", "-I", "-m", "entrypoint"]
BARE = ["/opt/venv/bin/python", "-c", "pass"]
CASES = {
    "python -c pass": BARE,
    "entrypoint, one worker": [*ENTRYPOINT, *BARE],
    "entrypoint, two workers": ["env", *CLUSTER, *ENTRYPOINT, *BARE],
    "entrypoint, two workers, .env": [
        *["env", "ENV_FILE=/tmp/.env", *CLUSTER],
        *[*ENTRYPOINT, *BARE],
    ],
    "entrypoint, refuses (WORKER_INDEX=9)": [
        *["sh", "-c", '"$@"; [ $? = 78 ]', "refused"],
        *["env", *CLUSTER, "WORKER_INDEX=9", *ENTRYPOINT],
    ],
}
IMPORTED = "import cluster_trainer.train"
PROGRAMS = {
    IMPORTED: IMPORTED,
    "the first with TensorFlow Datasets": f"{IMPORTED}, cluster_trainer.data.tfds_source",
}
# Isolated (-I), so that the image's start-up file does not turn off garbage collection.
ISOLATED = ["/opt/venv/bin/python", "-I", "-c"]
IMPORTS = {name: [*ISOLATED, text] for name, text in PROGRAMS.items()}
IMPORTS["the first as each program of the image does it"] = ["/opt/venv/bin/python", "-c", IMPORTED]
LAUNCHERS = {
    "sagemaker-training": ("sagemaker_training.entry_point", ["sagemaker-training"]),
    "torchrun": ("torch.distributed.run", ["torch", "numpy"]),
}
# Runs in the container, with {name: command} on its standard input.
TIMER = """
import json, subprocess, sys, time
cases = json.load(sys.stdin)
open("/tmp/.env", "w").write("TRAINER_EPOCHS=3\\n")
seconds = {name: [] for name in cases}
for round in range(ROUNDS + 1):
    for name, command in cases.items():
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if round:  # the first is a warm-up
            seconds[name].append(time.perf_counter() - started)
print(json.dumps(seconds))
"""


def main(image: str) -> None:
    """Measure and print both tables."""
    cases = CASES | {f"import {module}": command for module, command in launchers(image).items()}
    print(f"predicted: {PREDICTED}\n")
    print_table(measure(image, cases, ROUNDS), "beyond bare Python")
    print(f"\npredicted: {IMPORT_PREDICTED}\n")
    print_table(measure(image, IMPORTS, IMPORT_ROUNDS), "more")


def print_table(seconds: dict[str, list[float]], difference: str) -> None:
    """Print each case's times, and the difference of its median from that of the first case."""
    first = median(next(iter(seconds.values())))
    print(f"| case | median | lowest | highest | {difference} |")
    print("| --- | --- | --- | --- | --- |")
    for name, times in seconds.items():
        cells = [median(times), min(times), max(times), median(times) - first]
        print(f"| {name} | " + " | ".join(f"{cell:.3f} s" for cell in cells) + " |")


def measure(image: str, cases: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    """Return each case's times in seconds, all measured in one container."""
    mount = ["--volume", f"{TOOLS.resolve()}:/tools:ro"]
    python = ["--entrypoint", "python", image, "-c", TIMER.replace("ROUNDS", str(rounds))]
    command = ["docker", "run", "--rm", "--interactive", "--network", "none", *mount, *python]
    ended = subprocess.run(
        command, input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    return json.loads(ended.stdout)


def launchers(image: str) -> dict[str, list[str]]:
    """Install the other launchers beside the image; skip those that this machine cannot install."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, (module, packages) in LAUNCHERS.items():
        if install(name, packages) and same_python(image):
            path = f"PYTHONPATH=/tools/{name}"
            found[module] = ["env", path, "/opt/venv/bin/python", "-c", f"import {module}"]
        else:
            print(f"left out: {name} could not be installed for the image's Python")
    return found


def install(name: str, packages: list[str]) -> bool:
    """Install packages into a folder of their own, once."""
    target = TOOLS / name
    if target.exists():
        return True
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
    return subprocess.run([*pip, *packages], check=False).returncode == 0


def same_python(image: str) -> bool:
    """Tell whether packages that were built here run in the image."""
    version = "import sys; print(*sys.version_info[:2])"
    command = ["docker", "run", "--rm", "--entrypoint", "python", image, "-c", version]
    inside = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return inside == [str(part) for part in sys.version_info[:2]]


def median(values: list[float]) -> float:
    """Return the middle value of an odd number of values."""
    return sorted(values)[len(values) // 2]
