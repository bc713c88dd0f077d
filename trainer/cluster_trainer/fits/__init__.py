"""One `fit` with all that the image adds: a script's (script_fits.py), or the trainer's own."""
