"""The identity of a saved fit: which process saves fits, and to which call each fit belongs.

`fit_matching.choose` decides from which folder a call of `fit` resumes, and `Fits.choose` lets all
workers agree on it. Whether the checkpoint in that folder fits is decided later:
kept/consistency_check.py.
"""
