"""The cluster: its workers, their addresses, and the names of this machine."""
