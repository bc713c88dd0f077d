"""Fits y = 3x with JAX: each process has its own row, and all average their gradients.

The first start trains without end, unless ENDS is set. A start after a loss trains to the end. If
EXITS is set, rank 1 exits with this code after some steps.
"""

import os
from itertools import count

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
# The address of rank 0 is JAX's own variable; the other two are arguments.
jax.distributed.initialize(
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
    process_id=int(os.environ["JAX_PROCESS_ID"]),
    heartbeat_timeout_seconds=10,  # the default of 100 notices a lost process too late
)
from jax.experimental.multihost_utils import process_allgather  # noqa: E402

rank, workers = jax.process_index(), jax.process_count()
row = float(rank + 1)
weight = 0.0
steps = range(100) if int(os.environ["RESTART_COUNT"]) or os.environ.get("ENDS") else count()
for step in steps:
    mine = jax.grad(lambda given: (given * row - 3 * row) ** 2)(weight)
    weight -= 0.05 * float(process_allgather(mine).mean())
    if step == 20:
        print("step 20", flush=True)
        if rank == 1 and "EXITS" in os.environ:
            os._exit(int(os.environ["EXITS"]))  # unlike sys.exit, it waits for no other process
print(f"trained rank {rank} of {workers}: {weight:.4f}", flush=True)
