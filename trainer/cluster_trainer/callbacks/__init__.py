"""Keras's callbacks on a cluster, and those of the image's own.

`keeper.py` keeps checkpoints of a fit, `states.py` the state of other callbacks in them, `chief.py`
lets one worker write what is written once.
"""
