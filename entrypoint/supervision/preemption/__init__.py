"""PREEMPTION_NOTICE: asks the cloud's metadata server whether this machine is about to end."""
