#!/usr/bin/env bash
# Updates the locks in requirements/: NAME.in lists packages, NAME.txt pins them and their dependencies by hash.
# Versions in a lock stay unless its .in forbids them; `scripts/lock.sh --upgrade` takes the newest.
# At the end, it checks that all platforms have the images' packages. `scripts/lock.sh --check` does only that.
set -euo pipefail
cd "$(dirname "$0")/../requirements"

lock() { # NAME OPTIONS...
    echo "requirements/$1.txt"
    # No header, because it would contain this machine's paths and indexes.
    ../.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --output-file "$1.txt" "${@:2}" "$1.in" ${options[@]+"${options[@]}"} # bash 3.2 treats an empty array as unset
}

# Installs nothing, and downloads only the metadata of most packages. manylinux_2_36: Debian 12's C library.
check() { # PLATFORM NAME
    # `promise` is pure Python, and is published only as source.
    ../.venv/bin/uv pip install --quiet --dry-run --target ../.build/nothing --python-version 3.11 --no-deps --require-hashes \
        --python-platform "$1-manylinux_2_36" --only-binary :all: --no-binary promise --requirement "$2.txt" ||
        { echo "requirements/$2.txt cannot be installed on $1: see above" >&2; return 1; }
}

check_all() { # also after a failure
    local code=0
    for name in cpu jax-cpu digits pictures report installer; do
        check x86_64 "$name" || code=1
        check aarch64 "$name" || code=1
    done
    check x86_64 gpu || code=1
    check x86_64 jax-gpu || code=1 # there is no GPU image for aarch64
    [[ $code != 0 ]] || echo "x86_64 has all packages of the images, and aarch64 all packages of the CPU image."
    return $code
}

if [[ ${1-} == --check ]]; then check_all; exit; fi
options=("$@")
dropped=(--override overrides.in --no-emit-package libclang --no-emit-package setuptools --no-emit-package wheel)
lock cpu "${dropped[@]}" --override overrides-cpu.in
of_image=() # packages that the image has are not installed again
while read -r package; do of_image+=(--no-emit-package "$package"); done < <(sed -n 's/^\([a-z0-9-]*\)==.*/\1/p' cpu.txt)
lock gpu "${dropped[@]}" --constraint cpu.txt # the same versions in both images
of_jax=(--override overrides.in --no-emit-package setuptools --no-emit-package wheel)
lock jax-cpu "${of_jax[@]}"
lock jax-gpu "${of_jax[@]}" --constraint jax-cpu.txt
lock digits --no-emit-package numpy           # the image's own
lock pictures --no-deps                       # only the files in them
lock report "${of_image[@]}"
lock installer
lock inside
lock jax "${of_image[@]}"
lock trackers "${of_image[@]}"
lock keras-tests "${of_image[@]}"
lock sbom
lock dev
check_all
