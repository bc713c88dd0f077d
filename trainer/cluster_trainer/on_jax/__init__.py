"""Keras's `fit` on JAX: N processes train as one, with checkpoints on each of them.

Read in this order:

- `hook.py`: called when Keras is imported
- `fit.py`: one fit from beginning to end
- `batches.py` and `step.py`: each global batch, cut over all devices
- `agreement.py`: the workers' notes before each step
- `keeping.py`: checkpoints
- `cluster.py`: JAX's processes and their messages
- `refusals.py`: what is not supported

Arrays of all processes exist only within a training step. Between steps, and in `evaluate` and
`predict`, the model's variables are this process's own, so any worker may use the model alone.
Nothing here imports TensorFlow.
"""
