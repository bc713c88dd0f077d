#!/usr/bin/env bash
# Builds the image: build.sh cpu|gpu|cpu-r|gpu-r|jax-cpu|jax-gpu (-r: with R; jax-: Keras on JAX). Tags it cluster-trainer:cpu and
# cluster-trainer:VERSION-cpu, or accordingly.
#   build.sh cpu linux/arm64   builds cluster-trainer:cpu-arm64, for machines of another architecture than this one's
#   build.sh pictures   fetches the pictures of `make data-sample` to .build/pictures
#   build.sh report     fetches the packages of `make report` to .build/report
#   build.sh torch      builds cluster-trainer-benchmark:torch, for benchmarks/clusters
# It also runs with macOS's bash 3.2 and tools. The build gets the host's certificate bundle and pip configuration as
# BuildKit secrets, which leave no trace in the image.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VARIANT=${1:?usage: build.sh cpu|gpu|cpu-r|gpu-r|jax-cpu|jax-gpu|pictures|report|torch}
readonly ACCELERATOR=${VARIANT%-r}
PLATFORM=${2:-} # empty: this machine's
[ -z "$PLATFORM" ] || [ "$PLATFORM" != "linux/$(docker version --format '{{.Server.Arch}}')" ] || PLATFORM=
readonly PLATFORM
readonly TAG=$VARIANT${PLATFORM:+-${PLATFORM##*/}}
readonly LOG=.build/build-$TAG.log
case $PLATFORM:$VARIANT in
    :* | linux/amd64:* | linux/arm64:cpu | linux/arm64:cpu-r | linux/arm64:jax-cpu) ;;
    linux/arm64:*) echo "$VARIANT is built for linux/amd64 only; cpu, cpu-r and jax-cpu for linux/arm64, too" >&2; exit 2 ;;
    *) echo "PLATFORM: received $PLATFORM; accepted: linux/amd64, linux/arm64" >&2; exit 2 ;;
esac
NAME=cluster-trainer:$TAG
[ "$VARIANT" != torch ] || NAME=cluster-trainer-benchmark:torch
readonly NAME
with_r=0
files= # the target folder of a build that makes no image
case $VARIANT in pictures | report) files=.build/$VARIANT ;; esac
[ "$VARIANT" = "$ACCELERATOR" ] || with_r=1
backend=tensorflow
case $VARIANT in jax-*) backend=jax ;; esac

first_file() {
    local file
    for file in "$@"; do
        if [ -f "$file" ]; then
            echo "$file"
            return
        fi
    done
}

# Prints the environment's settings of pip's indexes as a configuration file.
pip_settings() {
    [ -z "${PIP_INDEX_URL:-}${PIP_EXTRA_INDEX_URL:-}${PIP_TRUSTED_HOST:-}" ] || echo '[global]'
    [ -z "${PIP_INDEX_URL:-}" ] || echo "index-url = $PIP_INDEX_URL"
    [ -z "${PIP_EXTRA_INDEX_URL:-}" ] || echo "extra-index-url = $PIP_EXTRA_INDEX_URL"
    [ -z "${PIP_TRUSTED_HOST:-}" ] || echo "trusted-host = $PIP_TRUSTED_HOST"
}

revision() {
    local hash
    hash=$(git rev-parse HEAD 2>/dev/null) || { echo unknown; return; }
    [ -z "$(git status --porcelain -- Dockerfile requirements patches entrypoint trainer)" ] || hash+=-modified
    echo "$hash"
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
base=$(scripts/base-image.sh "$PLATFORM")
certificates=$(first_file "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt)
pip_conf=$(first_file "${PIP_CONFIG_FILE:-}" ~/.config/pip/pip.conf ~/.pip/pip.conf /etc/pip.conf)

command=(docker buildx build --builder "$(docker context show)" --build-arg "BASE_IMAGE=$base")
if [ -n "$files" ]; then
    command+=(--target "$VARIANT" --output "type=local,dest=$files")
elif [ "$VARIANT" = torch ]; then
    command+=(--load --file benchmarks/torch/Dockerfile --build-arg "TORCH_INDEX=${TORCH_INDEX:-}" --tag "$NAME")
else
    command+=(--load --build-arg "ACCELERATOR=$ACCELERATOR" --build-arg "WITH_R=$with_r" --build-arg "KERAS_BACKEND=$backend"
        --build-arg "VERSION=$version" --build-arg "REVISION=$(revision)"
        --tag "$NAME" --tag "cluster-trainer:$version-$TAG" ${PLATFORM:+--platform "$PLATFORM"})
    [ "$backend" = tensorflow ] || command+=(--label "cluster-trainer.accelerators=${ACCELERATOR#jax-}")
    while read -r label; do
        command+=(--label "$label")
    done < <(scripts/labels.sh "$base")
fi
[ -z "$certificates" ] || command+=(--secret "id=ca,src=$certificates")
PIP_SETTINGS=$(pip_settings) # the environment takes precedence over the files, as with pip itself
export PIP_SETTINGS
if [ -n "$PIP_SETTINGS" ]; then
    command+=(--secret "id=pip_conf,env=PIP_SETTINGS")
elif [ -n "$pip_conf" ]; then
    command+=(--secret "id=pip_conf,src=$pip_conf")
fi
for proxy in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!proxy:-}" ] || command+=(--build-arg "$proxy")
done

say_emulator() {
    echo "This machine does not run the programs of $PLATFORM. An emulator is installed by the package qemu-user-static" \
        "(Debian, Ubuntu), or by \`docker run --privileged --rm tonistiigi/binfmt --install ${PLATFORM##*/}\`." >&2
}

image_id() { docker image inspect --format '{{.Id}}' "$NAME" 2>/dev/null || true; }

# On a terminal, one line shows the current step. BuildKit's own output goes to the log.
show_progress() {
    while sleep 1; do
        step=$(grep -oE '\[[a-z]+ +[0-9]+/[0-9]+\]|exporting layers' "$LOG" | tail -n 1) || true
        printf '\r\033[K  %s, %d s' "${step:-starting}" "$SECONDS" >&2
    done
}

build() {
    local progress="" code=0
    if [ -t 2 ]; then
        show_progress &
        progress=$!
        # shellcheck disable=SC2064 # the process of now
        trap "kill $progress 2>/dev/null; printf '\r\033[K' >&2" EXIT
    fi
    "${command[@]}" --progress plain . >"$LOG" 2>&1 || code=$?
    if [ -n "$progress" ]; then
        kill "$progress"
        printf '\r\033[K' >&2
        trap - EXIT
    fi
    return "$code"
}

mkdir -p .build
previous=$(image_id)
case $VARIANT in
    pictures | report) echo "Fetching the files of $VARIANT to $files (log: $LOG)" ;;
    *) echo "Building $NAME on $base (log: $LOG)" ;;
esac
if ! build; then
    tail -n 40 "$LOG" | cut -c 1-200 >&2
    ! grep -q 'exec format error' "$LOG" || say_emulator
    echo "The build failed; the whole log is in $LOG" >&2
    exit 1
fi
[ -z "$files" ] || exit 0
# Otherwise the previous image would stay without a name. If you have given it one, it stays.
[ "$previous" = "$(image_id)" ] || scripts/remove-unnamed.sh "$previous"
docker image inspect --format '{{.Size}}' "$NAME" |
    awk -v image="$NAME" '{printf "Built %s, %.2f GB\n", image, $1 / 1e9}'
