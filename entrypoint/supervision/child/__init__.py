"""Child processes: starting one, becoming the command, waiting for its end, explaining it."""
