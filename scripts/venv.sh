#!/usr/bin/env bash
# Makes .venv with the locked tools of `make test`, `make lint` and `make lock`. PYTHON= selects another Python.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PYTHON=${PYTHON:-python3}

die() { echo "tools: $*" >&2; exit 1; }

new_enough() { "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
can_make_environments() { "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; }

if ! command -v "$PYTHON" >/dev/null || ! can_make_environments; then
    if [ "$PYTHON" != python3 ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        die "$PYTHON with its module venv is needed (on Debian and Ubuntu: apt-get install python3-venv)."
    fi
    echo "Installing python3-venv"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
fi
new_enough || die "Python 3.11 or later is needed, but this is $("$PYTHON" --version). PYTHON=python3.12 make … selects another."

echo "Making .venv with the locked tools"
"$PYTHON" -m venv --clear .venv
.venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes -r requirements/dev.txt
touch .venv/stamp
