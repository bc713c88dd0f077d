"""The image's own callbacks of a fit: checkpoints, the chief's numbers, stops."""
