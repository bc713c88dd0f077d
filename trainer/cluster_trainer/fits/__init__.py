"""The image's additions to a `fit` of a script or the trainer; `fit.py` shows the order."""
