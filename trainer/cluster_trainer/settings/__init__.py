"""Reads the settings of a run from flags and TRAINER_ variables, and the task from TF_CONFIG.

Nothing here imports TensorFlow.
"""
