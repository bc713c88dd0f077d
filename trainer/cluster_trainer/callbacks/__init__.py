"""The image's own callbacks, and the adaptation of other callbacks to a cluster.

- `chief.py` lets the chief alone write files.
- `state/` saves the state of callbacks in checkpoints, which fits/kept/checkpoint_callback.py
  writes.
- `progress_report.py` reports the step to `status`, and `progress_display.py` shows the progress.
- `recording/` writes metrics, events and curves, and `profile.py` profiles chosen steps.
- `divergence.py` ends a run of the built-in trainer whose loss is not finite.
"""
