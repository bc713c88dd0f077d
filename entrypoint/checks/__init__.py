"""What is checked before a start: GPUs, the trainer's settings, versions."""
