"""Starts, stops and removes the workers on the machines."""
