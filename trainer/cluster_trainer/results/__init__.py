"""What a run leaves behind: the log, result.json, metrics.jsonl, the model, the mark of its end."""
