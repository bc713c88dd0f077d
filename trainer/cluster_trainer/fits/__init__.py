"""What every `fit` gets besides, a script's or the trainer's: `fit.py` shows it in its order."""
