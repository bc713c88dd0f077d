"""Results of a run: the log, result.json, metrics.jsonl, the model, and DONE once it is done."""
