#!/usr/bin/env bash
# Runs an SSH server and a Docker engine. /keys is made by the test: the host's key, and who may log in.
set -euo pipefail
mkdir -p /run/sshd
install -m 600 /keys/host /etc/ssh/host
install -d -m 700 -o ana -g ana /home/ana/.ssh
install -m 600 -o ana -g ana /keys/authorized /home/ana/.ssh/authorized_keys
/usr/sbin/sshd -h /etc/ssh/host -o PasswordAuthentication=no -o MaxStartups=100 -o UseDNS=no
exec machine
