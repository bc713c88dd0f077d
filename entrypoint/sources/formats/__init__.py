"""The notations of the contracts: lists of hosts, JSON documents, indices."""
