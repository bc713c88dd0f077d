"""Watches and ends a process: signals, stalls, lost peers, memory, exit codes."""
