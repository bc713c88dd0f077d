"""Results of a run: the log, result.json, metrics.jsonl, the model, the mark of its end."""
