"""What a fit writes for people: metrics, events, curves."""
