"""Data between replicas and workers: sums, gathered arrays, agreement, files.

`replicas.py` is for what the replicas compute (inside of `strategy.run`), `workers.py` for what the
workers' programs tell each other in between. `ring/` sums over workers without TensorFlow.
"""
