"""Runs on each worker, in the image: blocks of steps with a checkpoint and without, in turn.

From one run to the next, a machine's speed may change by more than a checkpoint costs. Within one
process, blocks of about a second run at the same speed. The checkpoint is at the beginning of its
block, so the time in which it is written counts in that block, too. Prints one JSON object: kind ->
seconds of each block.
"""

import json
import os
import sys
import time

from cluster_trainer.builtin.complete import complete
from cluster_trainer.data import registry
from cluster_trainer.engine.epoch_iterator import workers_of
from cluster_trainer.fits.kept.checkpoint_callback import CheckpointCallback
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results.on_screen.report import Reporter
from cluster_trainer.settings.job import read_job
from cluster_trainer.train import build_run, start_strategy

PAIRS = int(sys.argv[1])
WARM_UP = 4  # blocks that compile the steps and find the length of a call
WITH, WITHOUT = "with", "without"
MANY_STEPS = 10**9

# In both orders, so that a machine that becomes slower or faster favours neither.
PAIR_OF_KINDS = ((WITHOUT, WITH), (WITH, WITHOUT))
kinds = [WITH, WITHOUT] * (WARM_UP // 2)
kinds += [kind for pair in range(PAIRS) for kind in PAIR_OF_KINDS[pair % 2]]
seconds = []
began = None
keep = CheckpointCallback._save  # noqa: SLF001  it is called wherever a checkpoint is due


def begin_block(self: CheckpointCallback) -> None:
    """End the previous block, and begin the next one, with a checkpoint or without."""
    global began  # noqa: PLW0603
    now = time.monotonic()
    if began is not None:
        seconds.append(now - began)
    began = now
    if len(seconds) == len(kinds):
        end()
    if kinds[len(seconds)] == WITH:
        keep(self)


def end() -> None:
    """Print the result, and exit as the trainer does."""
    workers = workers_of(distribution)
    workers.gather(0)
    if job.task.is_chief:
        measured = [*zip(kinds, seconds, strict=True)][WARM_UP:]
        by_kind = {one: [took for kind, took in measured if kind == one] for one in (WITH, WITHOUT)}
        print(json.dumps(by_kind), flush=True)
    workers.part()
    os._exit(0)


CheckpointCallback._save = begin_block  # noqa: SLF001
job = read_job(os.environ, [], {"steps_per_epoch": MANY_STEPS})
job.folder.mkdir(parents=True, exist_ok=True)
distribution = start_strategy(job.config, job.task)
data = registry.load(job.config.dataset, job.config.data_dir, job.config.image_size)
run = build_run(job, data, distribution)
complete(run, StopRequest(print), Deadline(), Reporter(job.folder, job.config.epochs))
