"""Checkpoints: every worker keeps its own on its own disk, and any of them is enough.

`checkpoint.py` is the content of one, `store.py` a worker's folder of them, `saver.py` writes them
while training continues, `state.py` takes them from a model and restores them, `..collectives` lets
the workers find the newest and sends it to all, and `resume.py` decides where a run resumes.
"""
