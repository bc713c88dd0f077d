"""Whose a kept fit is: which process keeps fits, which call of the script each belongs to.

`call.choose` decides which folder a call of `fit` goes on from, and `Fits.choose` lets all workers
agree on it. Whether the checkpoint in that folder fits is decided later: kept/same_fit.py.
"""
