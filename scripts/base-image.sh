#!/usr/bin/env bash
# Prints the name of the base image to build on: BASE_IMAGE where it is here or can be pulled; else an equal
# base that debootstrap makes once from the machine's own Debian mirror (as root).
set -euo pipefail
cd "$(dirname "$0")/.."

readonly RELEASE=bookworm
readonly STAND_IN=cluster-trainer-base:$RELEASE
readonly PULL_SECONDS=${BASE_PULL_SECONDS:-120}

say() { echo "base: $*" >&2; }
die() { say "$*"; exit 1; }

is_here() { docker image inspect "$1" >/dev/null 2>&1; }

need_debootstrap() { # IMAGE
    command -v debootstrap >/dev/null && [ "$(id -u)" = 0 ] && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        die "$1 is not here and cannot be pulled; debootstrap would make an equal base, as root on Debian or Ubuntu."
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq --no-install-recommends debootstrap debian-archive-keyring >/dev/null
}

build_stand_in() { # IMAGE
    need_debootstrap "$1"
    say "$1 is not here and cannot be pulled: making an equal base, $STAND_IN, with debootstrap (about 40 s)"
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    local mirror
    mirror=$(scripts/debian-mirror.sh) # none: debootstrap's own default
    debootstrap --variant=minbase --include=ca-certificates,python3,tini "$RELEASE" "$work/root" ${mirror:+"$mirror"} \
        >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; die "debootstrap failed"; }
    # As in Debian's slim images: no manuals and no translations (the licences stay), no caches.
    find "$work/root/usr/share/doc" -type f ! -name copyright -delete
    find "$work/root/usr/share/doc" -type d -empty -delete
    tar --create --one-file-system --directory "$work/root" \
        --exclude='./var/cache/apt/*' --exclude='./var/cache/debconf/*-old' --exclude='./var/lib/apt/lists/*' \
        --exclude='./usr/share/man/*' --exclude='./usr/share/info/*' --exclude='./usr/share/locale/*' \
        --exclude='./usr/share/lintian' --exclude='./var/log/*' --exclude='./debootstrap' \
        --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' . |
        docker import --change 'CMD ["bash"]' --message "debootstrap minbase $RELEASE" - "$STAND_IN" >/dev/null
}

image=${BASE_IMAGE:-$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)}
if is_here "$image"; then
    echo "$image"
elif [ -z "${BASE_IMAGE:-}" ] && is_here "$STAND_IN"; then
    echo "$STAND_IN"
elif timeout "$PULL_SECONDS" docker pull --quiet "$image" >/dev/null 2>&1; then
    echo "$image"
elif [ -n "${BASE_IMAGE:-}" ]; then
    die "BASE_IMAGE=$image is not on this machine and cannot be pulled."
else
    build_stand_in "$image"
    echo "$STAND_IN"
fi
