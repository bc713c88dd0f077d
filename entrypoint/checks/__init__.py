"""Checks before a start: GPUs, the trainer's settings, versions."""
