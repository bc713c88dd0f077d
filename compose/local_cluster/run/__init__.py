"""One run of a cluster: its folder, its containers and what they print."""
