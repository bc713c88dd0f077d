"""Fits y = 3x with PyTorch over gloo; see in_jax.py."""

import os
from itertools import count

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, workers = dist.get_rank(), dist.get_world_size()
row = torch.tensor([float(rank + 1)])
weight = torch.zeros(1, requires_grad=True)
steps = range(100) if int(os.environ["RESTART_COUNT"]) or os.environ.get("ENDS") else count()
for step in steps:
    weight.grad = None
    ((weight * row - 3 * row) ** 2).sum().backward()
    dist.all_reduce(weight.grad)
    with torch.no_grad():
        weight -= 0.05 * weight.grad / workers
    if step == 20:
        print("step 20", flush=True)
        if rank == 1 and "EXITS" in os.environ:
            os._exit(int(os.environ["EXITS"]))  # unlike sys.exit, it waits for no other process
print(f"trained rank {rank} of {workers}: {weight.item():.4f}", flush=True)
