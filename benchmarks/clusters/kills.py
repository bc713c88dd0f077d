"""Measures the cost of a killed worker: `python -m benchmarks.clusters.kills [NAME …] [--kills N]`.

Three workers train a script. One after the other is killed (SIGKILL of its whole container) and
started again at once, every second time with an empty disk. Each worker records the end of each of
its steps. Times count from the last step of the killed worker, at most one step before the kill.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path

import docker
from docker import DockerClient
from docker.models.containers import Container

from benchmarks.clusters import machine
from benchmarks.clusters.containers import Cluster, started
from benchmarks.clusters.variants import RING, TENSORFLOW

PREDICTED = (
    "with MIN_WORKERS=2 the survivors' next step within 1 s, a pause of at most 0.5 s when the "
    "lost worker joins, which trains within 2 s of its import; otherwise all train within 7 s"
)
WORKERS, KILLS = 3, 10
CALM_SECONDS = 3.0
"""The time for which all train before the next kill."""
LONGEST_SECONDS = 120.0
COMMON = {
    "BENCH_STEPS": "300",
    "TRAINER_CHECKPOINT_STEPS": "100",
    "TRAINER_TENSORBOARD": "none",
}
CASES: dict[str, Mapping[str, str]] = {
    "tensorflow": TENSORFLOW,
    "ring": RING,
    "shrinking": RING | {"MIN_WORKERS": "2", "REGROUP_SECONDS": "0"},
}
NEVER_MISSING = {"shrinking": 1}
"""The number of workers, from worker 0 on, that are not killed: in this case, all need them."""
Event = tuple[float, str]
"""The time in seconds since 1970, and the event."""


@dataclass(frozen=True)
class Cost:
    """The cost of one kill, in seconds.

    Attributes:
        next_step: until all survivors had done their next step.
        second_pause: a survivor's longest pause between steps after that, until all train.
        full_strength: until the lost worker had done a step.
        imported: the duration of its import of TensorFlow.
        beyond_import: from the end of the import until its first step.
        restarted: the number of survivors that restarted their process.
    """

    next_step: float
    second_pause: float
    full_strength: float
    imported: float
    beyond_import: float
    restarted: int


def main(image: str, names: Sequence[str] = (), kills: int = KILLS) -> None:
    """Measure these cases, or all, and print a table."""
    client = docker.from_env()
    print(f"predicted: {PREDICTED}\n")
    print(f"{machine.described(client, image)}; {kills} kills\n")
    print(f"| case | {' | '.join(one.name.replace('_', ' ') for one in fields(Cost))} |")
    print(f"|{' --- |' * (1 + len(fields(Cost)))}", flush=True)
    for name in names or CASES:
        costs = measure(client, image, CASES[name], kills, NEVER_MISSING.get(name, 0))
        print(line(name, costs), flush=True)


def line(name: str, costs: Sequence[Cost]) -> str:
    """Return a case's line: the median of each number, the lowest and the highest."""
    rows = [asdict(cost) for cost in costs]
    cells = []
    for field in fields(Cost):
        numbers = [row[field.name] for row in rows]
        low, middle, high = min(numbers), statistics.median(numbers), max(numbers)
        digits = 0 if field.name == "restarted" else 2
        cells.append(f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")
    return f"| {name} | {' | '.join(cells)} |"


def measure(
    client: DockerClient, image: str, settings: Mapping[str, str], kills: int, first: int = 0
) -> list[Cost]:
    """Kill workers from `first` on, in turn, this number of times; return the cost of each kill."""
    with tempfile.TemporaryDirectory() as folder:
        command = ("python", "/workspace/steps.py")
        cluster = Cluster(image, WORKERS, Path(folder), {**COMMON, **settings}, command)
        with started(client, cluster) as workers:
            places = [Path(folder, str(index)) for index in range(WORKERS)]
            victims, found = WORKERS - first, []
            for turn in range(kills):
                victim, wipes = first + turn % victims, is_wiped(turn, victims)
                found.append(kill(workers, places, victim, wipes=wipes))
                print(f"kill {turn + 1}: {found[-1]}", file=sys.stderr)
            return found


def is_wiped(turn: int, victims: int) -> bool:
    """Tell whether the worker that is killed in this turn loses its disk, as every second one does.

    If the number of victims is even, the order changes with each pass. Otherwise the same victims
    would always lose their disks.
    """
    later = turn // victims if victims % 2 == 0 else 0
    return (turn + later) % 2 == 1


def kill(workers: Sequence[Container], places: Sequence[Path], victim: int, *, wipes: bool) -> Cost:
    """Kill a worker once all train, start it again, and return the cost."""
    _wait(workers, lambda: all(_trains(place) for place in places), "all train")
    calm_until = time.time() + CALM_SECONDS
    _wait(workers, lambda: time.time() > calm_until, "a few seconds pass")
    workers[victim].kill()
    workers[victim].wait()
    moment = [at for at, what in events(places[victim]) if what == "step"][-1]
    if wipes:
        for file in places[victim].iterdir():
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    workers[victim].start()
    _wait(workers, lambda: _steps_after(places[victim], moment) != [], "the lost worker trains")
    _wait(workers, lambda: all(_trains(place) for place in places), "all train again")
    return cost_of([events(place) for place in places], victim, moment)


def cost_of(everyone: Sequence[Sequence[Event]], victim: int, moment: float) -> Cost:
    """Return the cost of a kill, from all workers' events.

    Args:
        everyone: each worker's events, in rank order.
        victim: the killed worker's number.
        moment: its last step before the kill.
    """
    lost = [(at, what) for at, what in everyone[victim] if at > moment]
    survivors = [one for index, one in enumerate(everyone) if index != victim]
    back = next(at for at, what in lost if what == "step")
    # A start that fails is followed by another; the last one counts.
    began = [at for at, what in lost if what == "begins" and at < back][-1]
    imported = [at for at, what in lost if what == "has imported" and at < back][-1]
    pauses = [_pauses(one, moment, back) for one in survivors]
    return Cost(
        next_step=max(next_at for next_at, *_ in pauses) - moment,
        second_pause=max((pause for _, *after in pauses for pause in after), default=0.0),
        full_strength=back - moment,
        imported=imported - began,
        beyond_import=back - imported,
        restarted=sum(_began(one, moment) for one in survivors),
    )


def _pauses(worker: Sequence[Event], moment: float, until: float) -> list[float]:
    """Return the time of a survivor's next step, and the pauses after that.

    After the lost worker's last step, a survivor may complete one more step. So the pause that the
    loss has caused is the longer one of the pauses before and after that step.
    """
    steps = [at for at, what in worker if what == "step"]
    first = next(place for place, at in enumerate(steps) if at > moment)
    here, later = (steps[place] - steps[place - 1] for place in (first, first + 1))
    if later > here:
        first += 1
    gaps = pairwise(steps[first:])
    return [steps[first], *(end - begin for begin, end in gaps if begin < until)]


def _began(worker: Sequence[Event], moment: float) -> bool:
    return any(at > moment and what == "begins" for at, what in worker)


def events(place: Path) -> list[Event]:
    """Return the events that a worker has recorded so far."""
    file = place / "steps.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    found = []
    for text in lines:
        try:
            at, what = json.loads(text)
        except ValueError:  # it was killed while it wrote this line
            continue
        found.append((at, what))
    return found


def _steps_after(place: Path, moment: float) -> list[float]:
    return [at for at, what in events(place) if what == "step" and at > moment]


def _trains(place: Path) -> bool:
    """Tell whether a worker has completed steps within the last second."""
    return len(_steps_after(place, time.time() - 1.0)) > 1


def _wait(workers: Sequence[Container], is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            logs = "".join(worker.logs(tail=20).decode(errors="replace") for worker in workers)
            raise TimeoutError(f"not within {LONGEST_SECONDS:.0f} s: {what}\n{logs}")
        time.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clusters.kills")
    parser.add_argument(
        "names", nargs="*", choices=[[], *CASES], metavar="NAME", help=", ".join(CASES)
    )
    parser.add_argument("--kills", type=int, default=KILLS)
    given = parser.parse_args()
    main(os.environ.get("IMAGE", "cluster-trainer:cpu"), given.names, given.kills)
