"""Keras's own `fit`, `evaluate` and `predict` on any number of replicas, as on one device.

Keras calls this package when its TensorFlow backend is imported (patches/), so that a script needs
no import of ours. `install.py` lists the parts of Keras that are replaced. The rule behind all of
it: each replica computes its share of a global batch as one device would compute that share, and
every value that replicas combine is a mean weighted by the shares' sizes.
"""
