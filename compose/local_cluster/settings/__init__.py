"""The settings of a cluster, from variables, .env and make."""
