#!/usr/bin/env bash
# Runs a Docker engine in a container that has most capabilities, but is not privileged.
set -euo pipefail
mount -o remount,rw /sys
while read -r _ place kind options _; do
    case "$kind $options" in
        "cgroup"*" ro,"* | "proc ro,"*) mount -o remount,bind,rw "$place" ;; # without `bind`, this sometimes fails with "busy"
    esac
done </proc/mounts
exec dockerd --storage-driver overlay2 --exec-opt native.cgroupdriver=cgroupfs
