"""Exchanges data between replicas and workers: sums, gathered arrays, agreement, files.

`replicas.py` exchanges tensors between replicas, inside of `strategy.run`. `workers.py` exchanges
messages between the workers' programs. `ring/` sums over workers without TensorFlow.
"""
