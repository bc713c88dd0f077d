"""Benchmarks. They compare ratios within one run, and print medians beside the predictions."""
