"""Checkpoints: every worker saves its own on its own disk, and any of them is enough.

- `checkpoint.py` defines the content of a checkpoint, and `store.py` a worker's folder of them.
- `saver.py` writes them while training continues.
- `state.py` takes values from a model, and restores them.
- `resume.py` finds the newest checkpoint of all workers, from which a run resumes, and sends it to
  all of them.
- `without_weights.py` removes the weights from checkpoints of finished fits.
"""
