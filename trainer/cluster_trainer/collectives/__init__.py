"""Data between replicas and workers: sums, gathered arrays, agreement, files.

`replicas.py` is for the computation of replicas (inside of `strategy.run`), `workers.py` for
messages between the workers' programs. `ring/` sums over workers without TensorFlow.
"""
