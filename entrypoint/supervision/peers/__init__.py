"""The peers of a cluster: what is done about them beside the command, and what they may ask for."""
