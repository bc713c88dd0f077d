#!/usr/bin/env bash
# Checks for Docker Engine, Compose 2.24 or later, and buildx. The check also runs with macOS's bash 3.2 and tools.
#   engine.sh --check   prints the missing parts and how to install them; exits with 1 if a part is missing
#   engine.sh           installs and starts the missing parts (Debian or Ubuntu, as root); does not change other parts
set -euo pipefail
cd "$(dirname "$0")/.."

readonly NEWER_RELEASE=trixie # Debian 12 has no recent Compose and no buildx; those of 13 run on it (glibc 2.34 or later)
readonly PLUGINS=/usr/local/lib/docker/cli-plugins
readonly START_SECONDS=60
readonly DOCKERD_LOG=/var/log/dockerd.log

say() { echo "engine: $*" >&2; }
die() { say "$*"; exit 1; }

# Runs a command with a time limit; macOS has no `timeout`, so without one there.
within() { # SECONDS COMMAND...
    if command -v timeout >/dev/null; then timeout "$@"; else "${@:2}"; fi
}

has_client() { command -v docker >/dev/null; }
has_daemon() { within 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
# compose.yaml has an optional env_file, which Compose supports since 2.24.
has_compose() { docker compose version --short 2>/dev/null | grep -Eq '^v?(2\.(2[4-9]|[3-9][0-9]|[0-9]{3})|[3-9]|[1-9][0-9]+)\.'; }
has_buildx() { docker buildx version >/dev/null 2>&1; }

# Prints a line for each missing part.
missing() {
    if ! has_client; then
        echo "the docker command"
    else
        has_daemon || echo "a Docker daemon that answers"
        has_compose || echo "Compose 2.24 or later (docker compose)"
        has_buildx || echo "buildx (docker buildx)"
    fi
}

is_debian() { [ -r /etc/os-release ] && grep -Eq '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release; }

check() {
    local list
    list=$(missing | paste -sd, - | sed 's/,/, /g')
    [ -z "$list" ] && return
    if has_client && ! has_daemon && docker version 2>&1 | grep -qi 'permission denied'; then
        die "You may not use this machine's Docker daemon. Add yourself to the group docker, log in again, and repeat."
    elif is_debian; then
        die "Missing on this machine: $list. 'sudo make engine' installs and starts them."
    fi
    die "Missing on this machine: $list. Install Docker Desktop, or Docker Engine 20.10 or later with Compose 2.24 or later and buildx."
}

apt_install() {
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq --no-remove --no-install-recommends "$@" >/dev/null
}

# Tells whether this release has package NAME in this VERSION or later.
has_package() { # NAME VERSION
    local candidate
    candidate=$(apt-cache policy "$1" | awk '/Candidate:/ {print $2}')
    [ -n "$candidate" ] && [ "$candidate" != "(none)" ] && dpkg --compare-versions "${candidate#*:}" ge "$2"
}

install_docker() {
    local packages=(docker.io iptables ca-certificates)
    ! has_package docker-cli 0 || packages+=(docker-cli) # a separate package since Debian 13
    [ ! -e /sys/module/apparmor ] || packages+=(apparmor) # the daemon needs its parser if the kernel has AppArmor
    apt_install "${packages[@]}"
}

# Installs one command-line plugin from the newer release, with separate apt lists, so nothing else changes.
borrow_plugin() { # PLUGIN PACKAGE
    local work apt_options
    say "installing $1 from Debian $NEWER_RELEASE, into $PLUGINS"
    work=$(mktemp -d)
    mkdir -p "$work"/{lists/partial,cache/archives/partial,tree}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(scripts/debian-mirror.sh) $NEWER_RELEASE main" >"$work/sources"
    apt_options=(-qq -o "Dir::Etc::SourceList=$work/sources" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
    apt-get "${apt_options[@]}" update
    (cd "$work" && apt-get "${apt_options[@]}" download "$2")
    dpkg -x "$work"/*.deb "$work/tree"
    install -D -m 755 "$(find "$work/tree" -path "*/cli-plugins/$1" -type f)" "$PLUGINS/$1"
    rm -r "$work"
}

install_plugin() { # PLUGIN VERSION PACKAGE...
    local plugin=$1 version=$2 package
    shift 2
    for package in "$@"; do
        if has_package "$package" "$version"; then
            apt_install "$package"
            return
        fi
    done
    grep -q '^ID=debian' /etc/os-release || die "This release has no package for $plugin. Install it by hand."
    borrow_plugin "$plugin" "${!#}"
}

start_daemon() {
    [ -z "${DOCKER_HOST:-}" ] || die "The Docker daemon at DOCKER_HOST=$DOCKER_HOST does not answer. Start it there, or unset DOCKER_HOST."
    command -v dockerd >/dev/null || install_docker
    has_daemon && return # if systemd runs, Debian's package starts the daemon
    say "starting the Docker daemon"
    if [ -d /run/systemd/system ]; then
        systemctl start docker || true
    elif ! service docker start >/dev/null 2>&1; then
        nohup dockerd >>"$DOCKERD_LOG" 2>&1 &
    fi
    wait_for_daemon
}

wait_for_daemon() {
    local second
    for ((second = 0; second < START_SECONDS; second++)); do
        has_daemon && return
        sleep 1
    done
    tail -n 20 "$DOCKERD_LOG" /var/log/docker.log 2>/dev/null >&2 || true
    die "The Docker daemon did not answer within $START_SECONDS s of its start."
}

install_missing() {
    say "missing on this machine: $(missing | paste -sd, - | sed 's/,/, /g')"
    apt-get update -qq
    has_client || install_docker
    has_daemon || start_daemon
    has_compose || install_plugin docker-compose 2.24 docker-compose-plugin docker-compose-v2 docker-compose
    has_buildx || install_plugin docker-buildx 0 docker-buildx-plugin docker-buildx
    check
    say "ready: Docker $(docker version --format '{{.Server.Version}}'), Compose $(docker compose version --short), buildx $(docker buildx version | awk '{print $2}')"
}

if [ "${1:-}" != --check ] && [ -n "$(missing)" ] && is_debian && [ "$(id -u)" = 0 ]; then
    install_missing
else
    check
fi
