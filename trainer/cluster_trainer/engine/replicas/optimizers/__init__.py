"""Reduces gradients over all replicas before an optimizer uses them.

Keras's own optimizers sum last (`_backend_update_step` in
keras/src/backend/tensorflow/optimizer.py): each replica clips its own part, LossScaleOptimizer
looks for overflows on the first replica alone, and `gradient_accumulation_steps` fails.

Here all replicas have the same gradients before an optimizer begins (methods.py, gradients.py).
Each replica then updates its own copies of the variables, which therefore stay equal (updates.py).
The optimizer itself exchanges nothing, so it may act under a condition. A user's own `apply` or
`apply_gradients` also gets the summed gradients.

In a step that a worker takes by itself (rounds.py) an optimizer gets its share's own gradients.

A script's own learning-rate schedules are called only once for each step (schedules.py).
"""
