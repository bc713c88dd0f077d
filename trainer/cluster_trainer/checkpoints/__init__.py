"""Checkpoints: every worker keeps its own on its own disk, and any of them is enough.

`checkpoint.py` is what one holds, `store.py` a worker's folder of them, `saver.py` writes them
beside training, `state.py` takes them from a model and puts them back, `..collectives` lets the
workers find the newest and gives it to all, `resume.py` decides where a run goes on.
"""
