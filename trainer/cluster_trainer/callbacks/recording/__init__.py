"""Writes the records of a fit for people: metrics, events and curves."""
