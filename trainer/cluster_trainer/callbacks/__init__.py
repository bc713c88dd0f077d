"""Callbacks: Keras's on a cluster, and the image's own.

For each `fit`: `checkpoint_callback.py` keeps checkpoints, `state/` the state of other callbacks in
them, `chief.py` lets one worker write what is written once, `place_told.py` tells `status` the
step. For the trainer: `recording/` writes numbers, events and curves, `profile.py` profiles chosen
steps, `heartbeat.py` tells where the run is, `divergence.py` ends it where its loss is no number.
"""
