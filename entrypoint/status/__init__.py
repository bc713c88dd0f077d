"""The worker's status: the entrypoint keeps it in small files, and `status` shows it."""
