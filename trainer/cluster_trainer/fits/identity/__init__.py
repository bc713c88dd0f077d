"""Whose a kept fit is: which process keeps fits, which call of the script each belongs to."""
