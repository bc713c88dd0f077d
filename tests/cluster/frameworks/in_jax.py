"""Fits y = 3x by JAX: each process has a row of its own, and all sum their gradients.

A first start trains without end; one that follows a loss trains to the end.
"""

import os
from itertools import count

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
# The address of rank 0 is JAX's own variable; the other two are arguments.
jax.distributed.initialize(
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
    process_id=int(os.environ["JAX_PROCESS_ID"]),
    heartbeat_timeout_seconds=10,  # 100 unless told otherwise: so late a lost process is noticed
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
print(f"trained rank {rank} of {workers}: {weight:.4f}", flush=True)
