"""Compares whole clusters of pinned containers: ways to train the same network, and failures.

`python -m benchmarks.clusters` compares the examples/s, and `python -m benchmarks.clusters.kills`
measures the cost of a killed worker. The programs for the containers are in `workspace/`.
"""
