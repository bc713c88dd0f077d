"""`selftest`: tests a machine's devices, its network, and training on them, part by part."""
