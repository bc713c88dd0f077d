"""Random kills for as long as one likes: `make soak MINUTES=20`. Not collected by itself."""

import math
import random
import time

import pytest

from harness.chaos.run import Settings

pytest_plugins = ["harness.chaos.fixtures"]

STEP_SECONDS = 0.1
# More than the workers could take in a minute, so that the last kill comes before the last step.
STEPS_A_MINUTE = round(60 / STEP_SECONDS)
CHECKPOINT_STEPS = 25
# From one kill to the next.
CALM_SECONDS = (30, 60)


# Every wait in here has its own limit.
@pytest.mark.timeout(0)
def test_random_kills_for_minutes(begin_run, ends_as_undisturbed, request):
    minutes = request.config.getoption("--soak-minutes")
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    run = begin_run(Settings(math.ceil(minutes), STEPS_A_MINUTE, CHECKPOINT_STEPS), STEP_SECONDS)
    run.wait_for_step(0)
    end = time.monotonic() + 60 * minutes
    kill_time = time.monotonic() + chance.uniform(*CALM_SECONDS)
    while kill_time < end:
        time.sleep(max(0, kill_time - time.monotonic()))
        kill_time += chance.uniform(*CALM_SECONDS)
        victim = chance.randrange(3)
        run.kill(victim)
        run.wait_until_noticed()
        run.come_back(victim)
        run.wait_until_resumed()
        print(f"{len(run.disturbances)} kills, worker {victim} is back")
    kills = len(run.disturbances)
    assert kills >= minutes / 2
    scenario = f"soak: {kills} kills in {minutes:g} min, lost steps of all, longest times"
    ends_as_undisturbed(run, scenario, CHECKPOINT_STEPS)
    first, *_, last = run.machines[0].processes()
    assert last.batches[-1].time - first.batches[0].time >= 60 * minutes
