#!/usr/bin/env bash
# Makes the locks of requirements/ anew: NAME.in says what is wanted, NAME.txt pins all of it by hash.
# Versions that a lock already holds stay unless its .in forbids them; `scripts/lock.sh --upgrade` takes the newest.
set -euo pipefail
cd "$(dirname "$0")/../requirements"

lock() { # NAME OPTIONS...
    echo "requirements/$1.txt"
    # No header: it would name this machine's paths and indexes.
    ../.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --output-file "$1.txt" "${@:2}" "$1.in" ${options[@]+"${options[@]}"} # bash 3.2 takes an empty array for an unset one
}

options=("$@")
dropped=(--override overrides.in --no-emit-package libclang --no-emit-package setuptools --no-emit-package wheel)
lock cpu "${dropped[@]}" --override overrides-cpu.in
of_image=() # what the image has is the image's own
while read -r package; do of_image+=(--no-emit-package "$package"); done < <(sed -n 's/^\([a-z0-9-]*\)==.*/\1/p' cpu.txt)
lock gpu "${dropped[@]}" --constraint cpu.txt # the same versions in both images
lock digits --no-emit-package numpy           # the image's own
lock pictures --no-deps                       # only the files in them
lock report "${of_image[@]}"
lock installer
lock inside
lock keras-tests "${of_image[@]}"
lock sbom
lock dev
