"""The processes that train together: joining, messages, and the loss of a worker."""
