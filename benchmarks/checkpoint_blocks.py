"""Runs on each worker, inside the image: blocks of steps with and without a checkpoint, in turn.

A machine's speed may change by more than a checkpoint costs from one run to the next. Blocks of
about a second, one after the other in the same processes, meet the same machine. The checkpoint
comes first in its block, so that what is written beside training counts in that block, too.
Prints one JSON object: kind -> seconds of each block.
"""

import json
import os
import sys
import time

from cluster_trainer.batches import make_batches
from cluster_trainer.collectives.replicas import Replicas
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.data import registry
from cluster_trainer.job import read_job
from cluster_trainer.pace import Pace
from cluster_trainer.position import Position
from cluster_trainer.stall import Deadline, StallLimit
from cluster_trainer.stop import StopRequest
from cluster_trainer.train import build_run, start_strategy

PAIRS = int(sys.argv[1])
WITH, WITHOUT = "with", "without"

job = read_job(os.environ, [])
config, steps = job.config, job.config.checkpoint_steps
job.folder.mkdir(parents=True, exist_ok=True)
distribution = start_strategy(config, job.task)
data = registry.load(config.dataset, config.data_dir, config.image_size)
run = build_run(job, data, distribution)
run.find_position(Workers(distribution, Replicas.of(distribution)))
loop = run.loop
batches = make_batches(distribution, data, run.plan.cut, config, first_step=0)
pace = Pace(loop, config.steps_per_call, StopRequest(print), StallLimit(Deadline(), "auto"))
step = 0


def block(kind: str) -> float:
    """Train one interval, after a checkpoint or not; return the seconds it took."""
    global step  # noqa: PLW0603
    begin = time.monotonic()
    if kind == WITH:
        loop.totals()
        run.save(Position(step))
    pace.run(loop.train, batches.training, steps, lambda _: None)
    step += steps
    return time.monotonic() - begin


for kind in (WITH, WITHOUT) * 2:  # compiles, and finds the length of a call
    block(kind)
seconds = {WITH: [], WITHOUT: []}
for pair in range(PAIRS):
    # In both orders, so that a machine that grows slower or faster favours neither.
    for kind in (WITH, WITHOUT) if pair % 2 else (WITHOUT, WITH):
        seconds[kind].append(block(kind))
pace.meet()
if job.task.is_chief:
    print(json.dumps(seconds), flush=True)
pace.leave()
os._exit(0)  # as the trainer does: destructors of iterators wait for seconds
