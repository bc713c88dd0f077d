#!/usr/bin/env bash
# Makes a virtual environment with the image's packages, for a machine without Docker (docs/how-to/gpus.md):
#   without-docker.sh FOLDER [gpu|cpu]    PYTHON= selects another Python, 3.11 to 3.13
# The environment uses the code of this checkout. Keep the checkout as long as you use it.
set -euo pipefail
folder=$(realpath -m "$1")
cd "$(dirname "$0")/.."
readonly folder ACCELERATOR=${2:-gpu}

"${PYTHON:-python3}" -m venv --clear "$folder"
"$folder/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes \
    -r "requirements/$ACCELERATOR.txt"
packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
scripts/apply-patches.sh patches "$packages"
# As in the Dockerfile: our own packages, and code that each Python process of a command runs first.
printf '%s\n' "$PWD" "$PWD/trainer" \
    'import sys; sys.flags.isolated or __import__("cluster_trainer_start").begin()' > "$packages/cluster-trainer.pth"
echo "Ready: $folder/bin/python -m trainer selftest"
