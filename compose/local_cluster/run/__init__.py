"""One run of a cluster: its folder, its containers and their output."""
