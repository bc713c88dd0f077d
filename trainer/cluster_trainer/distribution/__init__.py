"""Devices, threads and the strategy."""
