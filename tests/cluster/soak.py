"""Random disturbances for a chosen time: `make soak MINUTES=20`. pytest does not collect this file.

Workers are killed, lose their disks, freeze or lose the network, one or two at a time. The first
test uses the defaults: all wait for the lost workers, and the run ends bit for bit like an
undisturbed one. The second test sets MIN_WORKERS: the others continue, every batch counts once, and
no worker trains apart. Gradients are summed in two buckets, like those of a larger model.
"""

import math
import random
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from harness.chaos import one_history
from harness.chaos.machine import Machine
from harness.chaos.run import WORKERS, ChaosRun, Settings, assembled

pytest_plugins = ["harness.chaos.fixtures"]

STEP_SECONDS = 0.1
# More steps than the workers can take, so that the last disturbance comes before the end.
STEPS_A_MINUTE = round(60 / STEP_SECONDS)
CHECKPOINT_STEPS = 25
# From the moment when all train again to the next disturbance.
CALM_SECONDS = (5, 20)
# Less and more than the 10 s after which a silent worker counts as lost.
AWAY_SECONDS = (1, 25)
FEWER = {"MIN_WORKERS": "2", "REGROUP_SECONDS": "1"}
# With fewer workers, sums are rounded differently, which sometimes flips a ReLU. At ten times this
# rate, undisturbed runs of two and of three workers differ by 4e-4 after 3,600 steps.
SMALL_RATE = 0.0001
# The dense layers' 0.3 MB of gradients are then one bucket, and the convolution's another.
PACK_BYTES = 2**15
# Every wait here has its own limit.
pytestmark = pytest.mark.timeout(0)


@pytest.fixture
def minutes(request):
    return request.config.getoption("--soak-minutes")


def test_random_disturbances_for_minutes(begin_run, ends_as_undisturbed, minutes):
    settings = Settings(math.ceil(minutes), STEPS_A_MINUTE, CHECKPOINT_STEPS, pack_bytes=PACK_BYTES)
    run = begin_run(settings, STEP_SECONDS)
    counted = disturb(run, minutes)
    scenario = f"soak of {minutes:g} min: {counted} (lost steps in total, longest times)"
    ends_as_undisturbed(run, scenario, CHECKPOINT_STEPS)


@pytest.fixture
def whole(workbench, tmp_path) -> Callable[[Settings], tuple[list[list[int]], list[np.ndarray]]]:
    """Train undisturbed; return the weights, and each step's examples on all workers."""

    def train(settings: Settings) -> tuple[list[list[int]], list[np.ndarray]]:
        with assembled(workbench, tmp_path / "undisturbed", settings) as run:
            run.boot(0.0)
            assert run.wait_for_end() == [0] * WORKERS, run.logs()
            processes = [machine.processes()[0].batches for machine in run.machines]
            steps = zip(*processes, strict=True)
            batches = [[one for part in parts for one in part.ids] for parts in steps]
            return batches, one_history.weights_of(run.machines[0])

    return train


def test_fewer_go_on_for_minutes(begin_run, whole, minutes):
    settings = Settings(
        math.ceil(minutes), STEPS_A_MINUTE, CHECKPOINT_STEPS, "sgd", SMALL_RATE, PACK_BYTES
    )
    run = begin_run(settings, STEP_SECONDS, options=dict.fromkeys(range(WORKERS), FEWER))
    counted = disturb(run, minutes)
    run.set_pace(0.0)
    codes = run.wait_for_end()
    print(run.logs())
    assert codes == [0] * WORKERS
    faults = one_history.faults(run.machines, *whole(settings))
    assert not faults, "\n".join(faults)
    print(f"fewer: {counted} in {minutes:g} min")


def disturb(run: ChaosRun, minutes: float) -> str:
    """Disturb a run for some minutes; return the number of disturbances of each kind, in words."""
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    done: list[str] = []
    run.wait_for_step(0)
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        time.sleep(chance.uniform(*CALM_SECONDS))
        victims = chance.sample(range(WORKERS), chance.choice([1, 1, 1, 2]))
        name = chance.choice([*WAYS])
        print(f"{time.strftime('%H:%M:%S')} {name} {victims}", flush=True)
        WAYS[name](run, victims, chance)
        done.append(name)
        run.wait_until_all_train()
    assert len(done) >= minutes
    counts = [f"{done.count(name)} times {name}" for name in WAYS if name in done]
    return ", ".join(counts)


def _kill(run: ChaosRun, victims: Sequence[int], chance: random.Random) -> None:
    run.kill(*victims)
    time.sleep(chance.choice([0, 0, 3, 15]))
    run.come_back(*victims)


def _wipe(run: ChaosRun, victims: Sequence[int], chance: random.Random) -> None:
    run.kill(*victims)
    time.sleep(chance.choice([0, 0, 3, 15]))
    run.replace(*victims)


def _away(
    leave: Callable[[Machine], None], be_back: Callable[[Machine], None]
) -> Callable[[ChaosRun, Sequence[int], random.Random], None]:
    def act(run: ChaosRun, victims: Sequence[int], chance: random.Random) -> None:
        run.disturb(*victims)
        for victim in victims:
            leave(run.machines[victim])
        time.sleep(chance.uniform(*AWAY_SECONDS))
        run.are_back()
        for victim in victims:
            be_back(run.machines[victim])

    return act


WAYS = {
    "killed": _kill,
    "killed and wiped": _wipe,
    "frozen": _away(Machine.pause, Machine.unpause),
    "cut off": _away(Machine.unplug, Machine.plug_in),
}
