"""All that the image adds to a `fit`, a script's or the trainer's: `fit.py` shows the order."""
