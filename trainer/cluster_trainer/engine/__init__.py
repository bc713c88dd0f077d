"""Keras's own `fit`, `evaluate` and `predict` on any number of replicas, as on one device.

Keras calls this package when its TensorFlow backend is imported (patches/), so that a script needs
no import of ours. `install.py` lists the parts of Keras that are replaced. One rule governs the
whole package: each replica computes its share of a global batch as a single device would, and
replicas combine values as means weighted by the sizes of their shares.
"""
