"""The same network and batch in PyTorch: DistributedDataParallel over gloo, or one process."""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn

EXAMPLES, CLASSES, BATCH = 20_000, 10, 64
EPOCHS, STEPS = int(os.environ["BENCH_EPOCHS"]), int(os.environ["BENCH_STEPS"])
HOSTS = [host for host in os.environ.get("WORKER_HOSTS", "").split(",") if host]
RANK, WORLD = int(os.environ.get("WORKER_INDEX", "0")), max(1, len(HOSTS))


def network() -> nn.Module:
    """Return mnist_cnn; 347,146 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 13 * 13, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


def main() -> None:
    """Train, and record the examples/s of all processes together."""
    torch.set_num_threads(1)
    if HOSTS:
        distributed.init_process_group("gloo", f"tcp://{HOSTS[0]}", rank=RANK, world_size=WORLD)
    noise = np.random.default_rng(RANK)
    inputs = torch.from_numpy(noise.random((EXAMPLES, 1, 28, 28), np.float32))
    labels = torch.from_numpy(noise.integers(0, CLASSES, EXAMPLES))
    model = network()
    if HOSTS:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer, loss_of = torch.optim.SGD(model.parameters(), 0.001), nn.CrossEntropyLoss()
    rates = []
    for epoch in range(EPOCHS):
        begin = time.perf_counter()
        for step in range(STEPS):
            first = (epoch * STEPS + step) * BATCH % (EXAMPLES - BATCH)
            batch = slice(first, first + BATCH)
            optimizer.zero_grad()
            loss_of(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
        rates.append(STEPS * BATCH * WORLD / (time.perf_counter() - begin))
    Path("/runs/rates.json").write_text(json.dumps(rates))
    if HOSTS:
        distributed.barrier()
        distributed.destroy_process_group()


main()
