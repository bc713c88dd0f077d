"""What a cluster is, as variables, .env and make say it."""
