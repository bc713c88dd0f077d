#!/bin/bash
# What a machine does when it is switched on. /keys is what the test has made: the host's key, and who may come in.
set -euo pipefail
# Left by a machine that was switched off.
rm -rf /run/docker /run/docker.pid /run/containerd /var/run/docker.sock
mount -o remount,rw /proc/sys
mount -o remount,rw /sys
while read -r _ place kind _; do
    case $kind in cgroup*) mount -o remount,rw "$place" ;; esac
done </proc/mounts
install -m 600 /keys/host /etc/ssh/host
install -D -m 600 -o ana -g ana /keys/authorized /home/ana/.ssh/authorized_keys
chown ana:ana /home/ana/.ssh
dockerd --storage-driver overlay2 --exec-opt native.cgroupdriver=cgroupfs >/var/log/dockerd 2>&1 &
exec /usr/sbin/sshd -D -e -h /etc/ssh/host -o PasswordAuthentication=no -o MaxStartups=100 -o UseDNS=no
