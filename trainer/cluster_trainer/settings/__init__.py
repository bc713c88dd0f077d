"""Settings of a run: flags and TRAINER_ variables, the task, a script's own arguments.

Nothing here imports TensorFlow, but for what reads a script's arguments.
"""
