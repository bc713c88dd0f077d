#!/usr/bin/env bash
# Prints the Debian mirror that this machine uses; nothing on any other system.
set -euo pipefail

codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
grep -q '^ID=debian' /etc/os-release || exit 0
# shellcheck disable=SC2016 # apt-get fills in the $(…) of this format
apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Identifier: Packages' |
    awk -v release="$codename" '$1 == release && !found {print $2; found = 1}'
