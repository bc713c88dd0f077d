"""The helper processes that deal with a cluster's peers beside the command."""
