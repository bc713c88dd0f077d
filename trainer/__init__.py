"""Train a Keras model under tf.distribute, as described by TRAINER_ variables and flags.

Read first: config.py (what can be set), train.py (the run from beginning to end), then the part
you care about: data/order.py (who sees which example when), loop.py (the compiled steps),
strategy.py (devices and workers), lifecycle.py (how a run ends, and with which exit code).
"""
