#!/usr/bin/env bash
# Runs a container as the controller, or as the node that its host name names.
set -euo pipefail
install -d -o munge -g munge /run/munge
install -d /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
runuser -u munge -- munged
if [ "$(hostname)" = controller ]; then
    exec slurmctld -D
fi
exec slurmd -D -N "$(hostname)"
