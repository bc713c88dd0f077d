#!/usr/bin/env bash
# Pushes the image that was built last: push.sh cpu|gpu|cpu-r|gpu-r, to REGISTRY, such as ghcr.io/name. It gets the
# names REGISTRY/cluster-trainer:cpu and REGISTRY/cluster-trainer:VERSION-cpu, or the like. `docker login` comes first.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VARIANT=${1:?usage: push.sh cpu|gpu|cpu-r|gpu-r}
readonly LOCAL=cluster-trainer:$VARIANT

die() { echo "push: $*" >&2; exit 1; }

label() { docker image inspect --format "{{index .Config.Labels \"org.opencontainers.image.$1\"}}" "$LOCAL"; }

[ -n "${REGISTRY:-}" ] || die "REGISTRY is needed: where the image goes, such as make push REGISTRY=ghcr.io/name."
docker image inspect "$LOCAL" >/dev/null 2>&1 || die "there is no $LOCAL: make build-$VARIANT builds it."
revision=$(label revision)
case $revision in
    unknown | *-modified)
        [ -n "${ALLOW_MODIFIED:-}" ] ||
            die "$LOCAL was built from files that are in no commit (revision $revision): commit, build, push; or ALLOW_MODIFIED=1."
        ;;
esac

for tag in "$VARIANT" "$(label version)-$VARIANT"; do
    docker image tag "$LOCAL" "$REGISTRY/cluster-trainer:$tag"
    docker push --quiet "$REGISTRY/cluster-trainer:$tag"
done
docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$LOCAL" | grep -F "$REGISTRY/cluster-trainer@"
