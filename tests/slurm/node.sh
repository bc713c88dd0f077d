#!/usr/bin/env bash
# Runs the controller or a node in this container, according to its host name.
set -euo pipefail
install -d -o munge -g munge /run/munge
install -d /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
runuser -u munge -- munged
if [ "$(hostname)" = controller ]; then
    exec slurmctld -D
fi
exec slurmd -D -N "$(hostname)"
