"""The records of a fit for people: metrics, events, curves."""
