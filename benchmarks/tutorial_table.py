"""Repeats the tutorials' trainings, on one worker and on several: `make tutorial-table`.

Each worker is pinned to an equal share of this machine's processors (cpuset, cpus). A single worker
gets only such a share, too. So N workers have N times its processors, as N machines would. The
tutorials had GPUs, so only the speed-up can be compared.

A batch of 256 pictures of 224x224 needs about 20 GB in mobilenet_v2. On smaller machines, use `make
tutorial-table IMAGE_SIZE=96`. `ROWS='batch 64'` measures the rows that contain these words.
`ROUNDS=3` runs one worker and several in turn, three times, and takes the medians, because the
speed of a shared machine varies.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLUSTER = (sys.executable, str(ROOT / "compose/cluster.py"))
PREDICTED = (
    "mobilenet_v2 on two workers at least 1.9 times one, on two CPU devices at least 1.7 times; "
    "mnist_cnn, whose steps take milliseconds, well below"
)
MNIST = {
    "TRAINER_MODEL": "mnist_cnn",
    "TRAINER_EPOCHS": "3",
    "TRAINER_PER_REPLICA_BATCH_SIZE": "64",
    "TRAINER_OPTIMIZER": "sgd",
    "TRAINER_LEARNING_RATE": "0.001",
    "TRAINER_LEARNING_RATE_SCHEDULE": "constant",
}
MOBILENET = {
    "TRAINER_MODEL": "mobilenet_v2",
    "TRAINER_IMAGE_SIZE": os.environ.get("TRAINER_IMAGE_SIZE", "224"),
    "TRAINER_EPOCHS": "5",
    "TRAINER_LEARNING_RATE_SCHEDULE": "constant",
}
HEAD = (
    "tutorial",
    "trains",
    "on",
    "s/epoch, one",
    "s/epoch, all",
    "speed-up",
    "accuracy, one",
    "accuracy, all",
    "the tutorial's own",
)
R = {"IMAGE": "cluster-trainer:cpu-r", "WORKSPACE_DIR": "examples/r"}
# Keras's line at the end of an epoch: "5/5 - 0s - loss: 2.29 - accuracy: 0.17 - 54ms/epoch - …"
KERAS_EPOCH = re.compile(r"accuracy: (?P<accuracy>[\d.]+) - (?P<time>\d+)(?P<unit>m?s)/epoch")


@dataclass(frozen=True)
class Layout:
    """The layout of a run: several workers, or several CPU devices of one worker."""

    workers: int = 1
    logical_cpus: int = 1

    @property
    def parts(self) -> int:
        """The number of shares of the machine that it uses."""
        return self.workers * self.logical_cpus

    def __str__(self) -> str:
        devices = f"{self.logical_cpus} CPU devices"
        return devices if self.logical_cpus > 1 else f"{self.workers} workers"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        tutorial: the name of the tutorial.
        what: the model and data that it trains.
        settings: variables of all its runs.
        several: the layout that is compared with one worker.
        larger: variables of the run on several workers only, if the total batch grows with them.
        document: the tutorial's own seconds, on one and on several.
        command: the command of each worker, instead of the trainer.
    """

    tutorial: str
    what: str
    settings: dict[str, str]
    several: Layout
    larger: dict[str, str] = field(default_factory=dict)
    document: tuple[int, int] | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """Seconds per epoch, examples/s, and the last accuracy."""

    seconds: float
    examples_per_second: float
    accuracy: float


def rows(data: Path) -> list[Row]:
    """Return the table's rows for the data sets that are prepared in a folder."""
    digits = "mnist" if (data / "mnist").is_dir() else "digits"
    mnist = MNIST | {"TRAINER_DATASET": digits}
    four = mnist | {"TRAINER_STEPS_PER_EPOCH": "5"}
    lab = mnist | {"TRAINER_STEPS_PER_EPOCH": "70", "NETWORK": "host"}
    two, devices = Layout(workers=2), Layout(logical_cpus=os.cpu_count() or 1)
    found = [
        Row("two machines", f"mnist_cnn, {digits}", mnist, two),
        Row("four machines, Python", f"mnist_cnn, {digits}", four, Layout(workers=4)),
        Row(
            "four machines, R", "the same in R", R, two, command=("Rscript", "train.R", "steps=70")
        ),
        Row("two-workers lab", f"mnist_cnn, {digits}", lab, two),
    ]
    for name, one_machine, two_machines in (
        ("tf_flowers", {64: (22, 7), 256: (22, 5)}, {64: (301, 152), 128: (301, 144)}),
        ("cats_vs_dogs", {64: (146, 39), 256: (146, 29)}, {64: (1622, 858), 128: (1622, 755)}),
    ):
        settings = MOBILENET | {"TRAINER_DATASET": name, "TRAINER_GLOBAL_BATCH_SIZE": "64"}
        for tutorial, figures, several in (
            ("handbook, one machine", one_machine, devices),
            ("handbook, two machines", two_machines, two),
        ):
            for batch, document in figures.items():
                larger = {"TRAINER_GLOBAL_BATCH_SIZE": str(batch)}
                side = settings["TRAINER_IMAGE_SIZE"]
                what = f"mobilenet_v2, {name} at {side}x{side}, total batch {batch}"
                found.append(Row(tutorial, what, settings, several, larger, document))
    return found


def main(image: str, data: Path, words: str, rounds: int) -> None:
    """Measure the rows that contain the words, and print each row when it is measured."""
    print(f"predicted: {PREDICTED}\n")
    print(f"| {' | '.join(HEAD)} |")
    print(f"|{' --- |' * len(HEAD)}")
    for row in rows(data):
        if words not in f"{row.tutorial}: {row.what} on {row.several}":
            continue
        ones, several = [], []
        for _ in range(rounds):  # in turn, so that other work on the machine affects both equally
            ones.append(measure(row, Layout(), row.settings, image, data))
            larger = row.settings | row.larger
            several.append(measure(row, row.several, larger, image, data))
        print(line(row, median_of(ones), median_of(several)), flush=True)


def median_of(runs: list[Measured]) -> Measured:
    """Return the medians of several runs."""
    return Measured(*map(statistics.median, zip(*map(astuple, runs), strict=True)))


def make_samples(image: str, data: Path) -> None:
    """Prepare samples of the handbook's data sets that are not there."""
    data.mkdir(parents=True, exist_ok=True)
    for name in ("tf_flowers", "cats_vs_dogs"):
        if not (data / name).is_dir():
            place = os.environ | {"IMAGE": image, "DATA_DIR": str(data)}
            subprocess.run([*CLUSTER, "data", "sample", name], env=place, check=True)


def line(row: Row, one: Measured, several: Measured) -> str:
    """Return the row as Markdown; the speed-up compares examples/s."""
    speed_up = several.examples_per_second / one.examples_per_second
    document = ""
    if row.document:
        before, after = row.document
        document = f"{before} s → {after} s, {before / after:.2f}"
    cells = [
        row.tutorial,
        row.what,
        str(row.several),
        f"{one.seconds:.2f}",
        f"{several.seconds:.2f}",
        f"{speed_up:.2f}",
        f"{one.accuracy:.3f}",
        f"{several.accuracy:.3f}",
        document,
    ]
    return f"| {' | '.join(cells)} |"


def measure(row: Row, layout: Layout, settings: dict[str, str], image: str, data: Path) -> Measured:
    """Run it as a local cluster to its end, and return the results of its epochs."""
    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder) / "pinned.json"
        overlay.write_text(json.dumps(overlay_of(layout, row)))
        environ = {
            "IMAGE": image,
            "COMPOSE_PROJECT_NAME": "tutorial-table",
            "RUNS_DIR": folder,
            "RUN_NAME": "run",
            "DATA_DIR": str(data),
            "OVERLAYS": str(overlay),
            "WORKERS": str(layout.workers),
            "TRAINER_THREADS": str(max(1, processors() // row.several.parts * layout.logical_cpus)),
            "TRAINER_CHECKPOINT_STEPS": "0",
            **settings,
        }
        if layout.logical_cpus > 1:
            environ["TRAINER_LOGICAL_CPUS"] = str(layout.logical_cpus)
        ended = subprocess.run(
            [*CLUSTER, "up"],
            cwd=ROOT,
            env=not_the_trainers(os.environ) | environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise SystemExit(ended.stdout + ended.stderr)
        worker = Path(folder) / "run/worker-0"
        return of_keras(worker / "container.log", layout) if row.command else of_trainer(worker)


def not_the_trainers(environ: Mapping[str, str]) -> dict[str, str]:
    """Remove the shell's own settings: IMAGE_SIZE, for example, applies to some rows only."""
    return {name: text for name, text in environ.items() if not name.startswith("TRAINER_")}


def overlay_of(layout: Layout, row: Row) -> dict[str, object]:
    """Return a Compose file that pins each worker to its share of the processors."""
    share = processors() / row.several.parts * layout.logical_cpus
    services = {}
    for worker in range(layout.workers):
        first = int(worker * share) % processors()
        last = min(processors() - 1, first + max(1, round(share)) - 1)
        services[f"worker-{worker}"] = {"cpus": share, "cpuset": f"{first}-{last}"}
        if row.command:
            services[f"worker-{worker}"] |= {"command": list(row.command)}
    return {"services": services}


def processors() -> int:
    """Return the number of this machine's processors."""
    return os.cpu_count() or 1


def of_trainer(worker: Path) -> Measured:
    """Read metrics.jsonl. The first epoch compiles, and its time does not count."""
    lines = (worker / "metrics.jsonl").read_text().splitlines()
    epochs = [json.loads(text) for text in lines[1:]]
    return Measured(
        statistics.median(epoch["seconds"] for epoch in epochs),
        statistics.median(epoch["examples_per_second"] for epoch in epochs),
        epochs[-1]["test_accuracy"],
    )


def of_keras(log: Path, layout: Layout) -> Measured:
    """Read the lines of Keras's `fit`. Its batch grows with the workers."""
    found = list(KERAS_EPOCH.finditer(log.read_text()))
    times = [int(one["time"]) / (1000 if one["unit"] == "ms" else 1) for one in found[1:]]
    seconds = statistics.median(times)
    return Measured(seconds, layout.workers / seconds, float(found[-1]["accuracy"]))


if __name__ == "__main__":
    where = Path(os.environ.get("DATA_DIR") or ROOT / ".build/data").resolve()
    used = os.environ.get("IMAGE", "cluster-trainer:cpu")
    make_samples(used, where)
    main(used, where, os.environ.get("ROWS", ""), int(os.environ.get("ROUNDS", "1")))
