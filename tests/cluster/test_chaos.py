"""Whatever fails, and whenever: the run ends with the weights of an undisturbed run.

Three workers train a model that records every batch. `ends_as_undisturbed` compares the records
with an undisturbed run: the weights bit for bit, each worker's batches, the repeated steps.
`make test` runs one scenario: the chief is killed and loses its disk. The others are `long`.
test_kept_fit.py also kills workers of a script that keep their disks.
"""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from harness.chaos.machine import Machine
from harness.chaos.run import START_SECONDS, Settings, assembled
from harness.chaos.small_disk import small_disk
from harness.waiting import wait_until

pytest_plugins = ["harness.chaos.fixtures"]
pytestmark = pytest.mark.chaos
long = pytest.mark.long

SETTINGS = Settings(epochs=2, steps_per_epoch=120, checkpoint_steps=25)
INTERVAL = SETTINGS.checkpoint_steps
# On two cores, a step takes 15 ms by itself, and a disturbance takes a second to have an effect.
STEP_SECONDS = 0.02
A_STEP = 60
AWAY_SECONDS = 30
AGREED = "3 workers are here and agree"
CHIEF, WORKER, OTHER = 0, 1, 2


@pytest.fixture
def run(begin_run):
    return begin_run(SETTINGS, STEP_SECONDS)


@long
@pytest.mark.parametrize(
    ("whom", "victims"),
    [
        pytest.param("a worker", [WORKER], id="a-worker"),
        pytest.param("the chief", [CHIEF], id="the-chief"),
        pytest.param("two workers at once", [WORKER, OTHER], id="two-at-once"),
    ],
)
def test_sigkill(run, ends_as_undisturbed, whom, victims):
    run.wait_for_step(A_STEP)
    run.kill(*victims)
    run.wait_until_noticed()
    run.come_back(*victims)
    ends_as_undisturbed(run, f"SIGKILL of {whom}", INTERVAL)


@pytest.mark.parametrize(
    ("whom", "victims"),
    [
        pytest.param("a worker", [WORKER], id="a-worker", marks=long),
        pytest.param("the chief", [CHIEF], id="the-chief"),
        pytest.param("all but one worker", [CHIEF, WORKER], id="all-but-one", marks=long),
    ],
)
def test_sigkill_and_the_disk_is_lost(run, ends_as_undisturbed, whom, victims):
    run.wait_for_step(A_STEP)
    run.kill(*victims)
    run.wait_until_noticed()
    run.replace(*victims)
    ends_as_undisturbed(run, f"SIGKILL of {whom}, disk wiped", INTERVAL)


@long
def test_sigkill_while_it_starts(run, ends_as_undisturbed):
    run.wait_for_line(WORKER, AGREED)
    run.kill(WORKER)
    # The others wait for it, so nobody notices the loss before it is at the gate again.
    run.come_back(WORKER)
    scenario = "SIGKILL of a worker while it starts"
    ends_as_undisturbed(run, scenario, INTERVAL, noticed_within=AWAY_SECONDS, may_be_missed=True)


@long
@pytest.mark.parametrize(
    ("what", "victim"),
    [("checkpoint", WORKER), ("evaluation", OTHER), ("export", CHIEF)],
    ids=["checkpoint", "evaluation", "export"],
)
def test_sigkill_during(run, ends_as_undisturbed, what, victim):
    run.machines[victim].trigger(f"kill-during-{what}")
    run.wait_for_sabotage(victim)
    run.wait_until_noticed()
    run.come_back(victim)
    ends_as_undisturbed(run, f"SIGKILL during {what}", INTERVAL)


@dataclass(frozen=True)
class Absence:
    """A way for a worker to leave for a while, and to come back."""

    scenario: str
    leave: Callable[[Machine], None]
    be_back: Callable[[Machine], None]


ABSENCES = {
    "docker-pause": Absence("`docker pause` of a worker", Machine.pause, Machine.unpause),
    "network-disconnect": Absence("a worker without network", Machine.unplug, Machine.plug_in),
}


@pytest.fixture(scope="module")
def back_again(workbench, tmp_path_factory, request):
    """Run the selected absences side by side, since most of the time is waiting."""
    tests = [item for item in request.session.items if "back_again" in item.fixturenames]
    absences = {name: ABSENCES[name] for name in (test.callspec.params["name"] for test in tests)}
    runs = {}
    with ExitStack() as stack:
        for name, absence in absences.items():
            folder = tmp_path_factory.mktemp(name)
            run = stack.enter_context(assembled(workbench, folder, SETTINGS))
            run.boot(STEP_SECONDS)
            run.wait_for_step(A_STEP)
            absence.leave(run.machines[WORKER])
            run.disturb(WORKER)  # now: a pause may need more than one attempt
            runs[name] = run
        for name, run in runs.items():
            time.sleep(max(0, run.disturbances[0].time + AWAY_SECONDS - time.time()))
            run.are_back()
            ABSENCES[name].be_back(run.machines[WORKER])
        yield runs


# tests/inside/test_silence.py loses a frozen worker, with processes.
@long
@pytest.mark.parametrize("name", ABSENCES)
def test_a_worker_is_away(back_again, ends_as_undisturbed, name):
    scenario = f"{ABSENCES[name].scenario} for {AWAY_SECONDS} s"
    ends_as_undisturbed(back_again[name], scenario, INTERVAL)


@pytest.mark.parametrize(
    ("whom", "told"),
    [
        pytest.param("a worker", [WORKER], id="one", marks=long),
        pytest.param("all workers", [CHIEF, WORKER, OTHER], id="all", marks=long),
    ],
)
def test_sigterm(run, ends_as_undisturbed, whom, told):
    run.wait_for_step(A_STEP)
    assert run.stop(*told) == [143] * len(told)
    run.wait_until_noticed()
    run.come_back(*told)
    ends_as_undisturbed(run, f"SIGTERM to {whom}", 0)


def cut_off_the_end(file):
    file.write_bytes(file.read_bytes()[:-100])


def flip_bits(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0b1010
    file.write_bytes(content)


def make_empty(file):
    file.write_bytes(b"")


# tests/unit/trainer/test_checkpoints.py damages a checkpoint in all of these ways.
@pytest.mark.parametrize(
    ("damaged", "damage"),
    [
        pytest.param("truncated", cut_off_the_end, id="truncated", marks=long),
        pytest.param("with flipped bits", flip_bits, id="flipped-bits", marks=long),
        pytest.param("empty", make_empty, id="empty", marks=long),
    ],
)
def test_the_newest_checkpoint_is_damaged(run, ends_as_undisturbed, damaged, damage):
    run.wait_for_step(A_STEP)
    everyone = [CHIEF, WORKER, OTHER]
    # Each saves a checkpoint of its last step. The checkpoint before it is the last regular one.
    assert run.stop(*everyone) == [143] * 3
    for machine in run.machines:
        damage(machine.checkpoints()[-1])
    whole = max(machine.checkpoints()[-2].name for machine in run.machines)
    run.come_back(*everyone)
    ends_as_undisturbed(run, f"each worker's newest checkpoint {damaged}", INTERVAL)
    for machine in run.machines:
        assert "is damaged and was removed" in machine.log()
        assert machine.processes()[1].first_step == int(whole.partition(".")[0])


@pytest.fixture
def disk(workbench, tmp_path):
    with small_disk(workbench, "8m", tmp_path / "machine-2/runs") as disk:
        yield disk


@long
def test_the_disk_is_full_while_saving(disk, begin_run, ends_as_undisturbed):
    run = begin_run(SETTINGS, STEP_SECONDS, volumes={OTHER: disk.volume})
    # Once a disk has three, the oldest makes room for the next checkpoint, and nothing fails.
    wait_until(disk.checkpoints, START_SECONDS, "the first checkpoint is there", run.logs)
    older = disk.checkpoints()
    disk.fill()
    run.wait_for_line(OTHER, "could not be saved: [Errno 28] No space left on device")
    assert set(disk.checkpoints()) & set(older)
    disk.empty()
    run.wait_for_end()
    disk.copy()
    ends_as_undisturbed(run, "a worker's disk full for a while", 0)


@long
def test_the_memory_limit_is_hit(begin_run, ends_as_undisturbed):
    limit = {"mem_limit": "1g", "memswap_limit": "1g"}
    run = begin_run(SETTINGS, STEP_SECONDS, options={WORKER: limit})
    run.wait_for_step(A_STEP)
    run.disturb(WORKER)
    run.machines[WORKER].trigger("exhaust-memory")
    run.wait_for_line(
        WORKER, "killed by SIGKILL: out of memory, this container's limit is 1024 MiB"
    )
    ends_as_undisturbed(run, "out of memory on a worker (`--memory 1g`)", INTERVAL)


SEED = 5


@long
def test_five_random_kills(run, ends_as_undisturbed):
    chance = random.Random(SEED)
    for begin in (10, 50, 90, 130, 170):
        step, victim = chance.randrange(begin, begin + 40), chance.randrange(3)
        print(f"seed {SEED}: SIGKILL of worker {victim} at step {step}")
        run.wait_for_step(step)
        run.kill(victim)
        run.wait_until_noticed()
        run.come_back(victim)
        run.wait_until_resumed()
    ends_as_undisturbed(run, "five random kills (lost steps in total, longest times)", INTERVAL)
