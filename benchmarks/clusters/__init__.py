"""Whole clusters side by side: ways to train the same network on pinned containers, and failures.

`python -m benchmarks.clusters` compares what is trained a second, and
`python -m benchmarks.clusters.kills` measures what a killed worker costs. What runs inside the
containers is in `workspace/`.
"""
