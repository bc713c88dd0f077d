"""Watching and ending a process: signals, stalls, lost peers, memory, exit codes."""
