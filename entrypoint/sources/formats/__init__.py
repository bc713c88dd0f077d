"""How the contracts write things down: lists of hosts, JSON documents, indices."""
