"""Results of a run: the log, result.json, metrics.jsonl, the model, and DONE when it is complete."""
