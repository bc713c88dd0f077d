"""What a command prints, on its way out: as it is, or as JSON lines."""
