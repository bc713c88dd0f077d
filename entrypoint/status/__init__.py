"""What this worker is at: kept in small files by the entrypoint, shown by `status`."""
