"""The identity of a saved fit: which process saves fits, and to which call each belongs.

`matching.choose` decides from which folder a call of `fit` resumes, and `Fits.choose` lets all
workers agree on it. Whether the checkpoint in that folder fits is decided later: kept/same_fit.py.
"""
