"""Measurements: ratios side by side in one run, medians, with what was predicted."""
