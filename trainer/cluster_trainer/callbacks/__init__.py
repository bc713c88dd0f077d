"""Callbacks: Keras's on a cluster, and the image's own.

For each `fit`: `checkpoint_callback.py` saves checkpoints, `state/` the state of other callbacks in
them, `chief.py` lets one worker write files that are written once, and `progress_report.py` reports
the step to `status`. For the trainer: `recording/` writes metrics, events and curves, `profile.py`
profiles chosen steps, `progress_display.py` shows the progress, and `divergence.py` ends a run
whose loss is not finite.
"""
