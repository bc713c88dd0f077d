"""Where a script runs whose own folder is read-only: a folder of its worker's, which mirrors it."""
