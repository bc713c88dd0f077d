#!/usr/bin/env bash
# Prints the name of the base image to build on: BASE_IMAGE, otherwise the image that the Dockerfile pins (the name
# may contain a digest: debian:…-slim@sha256:…). If the pinned image is not here and cannot be pulled, it is a stand-in:
# an equivalent base that debootstrap makes from the machine's own Debian mirror (as root).
#   base-image.sh linux/arm64   prints one of another architecture than this machine's; see build.sh
# Once a day, the script tries again to pull the pinned image. A stand-in older than 30 days is made again, for
# Debian's security updates.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly RELEASE=bookworm
readonly PLATFORM=${1:-} # empty: this machine's
ARCHITECTURE=${PLATFORM#linux/}
[ -n "$ARCHITECTURE" ] || ARCHITECTURE=$(docker version --format '{{.Server.Arch}}')
readonly ARCHITECTURE
readonly STAND_IN=cluster-trainer-base:$RELEASE${PLATFORM:+-$ARCHITECTURE}
readonly MAX_DAYS=30
readonly NOT_PULLED=.build/base-not-pulled # has the name of the image that could not be pulled; its age shows when
pull=                                      # the id of `docker pull`
work=                                      # a folder for debootstrap

say() { echo "base: $*" >&2; }
die() { say "$*"; exit 1; }

clean_up() {
    [ -z "$pull" ] || kill "$pull" 2>/dev/null || true
    [ -z "$work" ] || rm -rf --one-file-system "$work"
}
trap clean_up EXIT

# Tells whether the engine has an image of the architecture. By each name it keeps an image of one only.
is_here() { # IMAGE
    [ "$(docker image inspect --format '{{.Architecture}}' "$1" 2>/dev/null)" = "$ARCHITECTURE" ]
}

# Pulls an image within a time limit; macOS has no `timeout`.
can_pull() { # IMAGE SECONDS
    local end=$((SECONDS + $2)) code=0
    docker pull --quiet ${PLATFORM:+--platform "$PLATFORM"} "$1" >/dev/null 2>&1 &
    pull=$!
    while kill -0 "$pull" 2>/dev/null && [ "$SECONDS" -lt "$end" ]; do sleep 0.1; done
    kill "$pull" 2>/dev/null || true
    wait "$pull" || code=$?
    pull=
    [ "$code" = 0 ] || return 1
    say "pulled $1: $(docker image inspect --format '{{index .RepoDigests 0}}' "$1")"
}

tried_today() { # IMAGE
    [ "$(cat $NOT_PULLED 2>/dev/null)" = "$1$PLATFORM" ] && [ -n "$(find $NOT_PULLED -mtime -1)" ]
}

# The first pull may take longer. With a stand-in, the build does not depend on it.
can_pull_pinned() { # IMAGE
    local seconds=120
    ! tried_today "$1" || return 1
    ! is_here "$STAND_IN" || seconds=30
    can_pull "$1" "${BASE_PULL_SECONDS:-$seconds}" && return
    mkdir -p .build
    echo "$1$PLATFORM" >$NOT_PULLED
    return 1
}

days_ago() { # DAYS, as a date; GNU's date, or that of macOS
    local then=$(($(date +%s) - $1 * 86400))
    date -u -d "@$then" +%F 2>/dev/null || date -u -r "$then" +%F
}

is_young() { # IMAGE
    [[ $(docker image inspect --format '{{.Created}}' "$1") > $(days_ago $MAX_DAYS) ]]
}

has_debootstrap() {
    command -v debootstrap >/dev/null && [ "$(id -u)" = 0 ] && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "debootstrap, which would make an equivalent base, needs root on Debian or Ubuntu."
        return 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq --no-install-recommends debootstrap debian-archive-keyring >/dev/null
}

run_debootstrap() {
    local mirror
    mirror=$(scripts/debian-mirror.sh) # empty: debootstrap's own default
    debootstrap ${PLATFORM:+--arch "$ARCHITECTURE"} --variant=minbase --include=ca-certificates,python3,tini "$RELEASE" "$work/root" ${mirror:+"$mirror"} \
        >"$work/log" 2>&1 && return
    tail -n 20 "$work/log" >&2
    say "debootstrap failed"
    return 1
}

import_stand_in() {
    # As in Debian's slim images: no manuals, translations and caches. The licences stay.
    find "$work/root/usr/share/doc" -type f ! -name copyright -delete
    find "$work/root/usr/share/doc" -type d -empty -delete
    tar --create --one-file-system --directory "$work/root" \
        --exclude='./var/cache/apt/*' --exclude='./var/cache/debconf/*-old' --exclude='./var/lib/apt/lists/*' \
        --exclude='./usr/share/man/*' --exclude='./usr/share/info/*' --exclude='./usr/share/locale/*' \
        --exclude='./usr/share/lintian' --exclude='./var/log/*' --exclude='./debootstrap' \
        --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' . >"$work/image/root.tar"
    # `docker import` of Docker 20.10 gives any image this machine's architecture.
    printf '%s\n' 'FROM scratch' 'ADD root.tar /' 'CMD ["bash"]' >"$work/image/Dockerfile"
    docker buildx build --builder "$(docker context show)" ${PLATFORM:+--platform "$PLATFORM"} --load --quiet \
        --tag "$STAND_IN" "$work/image" >/dev/null
}

make_stand_in() {
    local previous
    say "making an equivalent base, $STAND_IN, with debootstrap (about 40 s)"
    previous=$(docker image inspect --format '{{.Id}}' "$STAND_IN" 2>/dev/null || true)
    work=$(mktemp -d)
    mkdir "$work/image"
    has_debootstrap && run_debootstrap && import_stand_in || return
    # If images are built on it, it stays, without a name, as long as they do.
    scripts/remove-unnamed.sh "$previous"
}

image=${BASE_IMAGE:-$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)}
if is_here "$image"; then
    echo "$image"
elif [ -n "${BASE_IMAGE:-}" ]; then
    can_pull "$image" "${BASE_PULL_SECONDS:-120}" || die "BASE_IMAGE=$image is not on this machine and cannot be pulled."
    echo "$image"
elif can_pull_pinned "$image"; then
    echo "$image"
else
    if ! is_here "$STAND_IN"; then
        say "$image is not here and cannot be pulled"
        make_stand_in || die "there is no base to build on. Set BASE_IMAGE= to an image on this machine, for example one from 'docker load'."
    elif ! is_young "$STAND_IN"; then
        say "$STAND_IN is more than $MAX_DAYS days old"
        make_stand_in || say "building on it, without Debian's latest security updates."
    fi
    echo "$STAND_IN"
fi
