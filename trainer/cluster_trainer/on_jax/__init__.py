"""Keras's `fit` on JAX: N processes train as one, with checkpoints on each of them.

Read in this order:

- `hook.py`: called when Keras is imported
- `fit.py`: one fit from beginning to end
- `steps/`: each global batch, cut over all devices, and the workers' notes before each step
- `callbacks/`: checkpoints, and when a callback stops the fit
- `workers/`: JAX's processes, their messages, and the loss of one
- `refusals.py`: what is not supported

Arrays of all processes exist only within a training step. Between steps, and in `evaluate` and
`predict`, the model's variables are this process's own, so any worker may use the model alone.
Nothing here imports TensorFlow.
"""
