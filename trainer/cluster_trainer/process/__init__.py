"""How a process is watched and ends: signals, stalls, lost peers, memory, exit codes."""
