"""Settings of a run: flags and TRAINER_ variables, the task, a script's own arguments.

Nothing here imports TensorFlow, except the reader of a script's arguments.
"""
