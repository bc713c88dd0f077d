"""All that the image adds to a `fit` of a script or the trainer; `fit.py` shows the order."""
