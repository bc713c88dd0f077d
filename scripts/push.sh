#!/usr/bin/env bash
# Pushes the image that was built last: push.sh cpu|gpu|cpu-r|gpu-r, to REGISTRY, such as ghcr.io/name. It gets the
# names REGISTRY/cluster-trainer:cpu and REGISTRY/cluster-trainer:VERSION-cpu, or the like. `docker login` comes first.
# Prints the name with the digest by which the registry has it.
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

readonly NAME=${REGISTRY%/}/cluster-trainer

# Pushes one name, shows how far it is, and prints the digest. The engine says it at the end of a push: among the
# digests of an image it has other names than were given (me/… for docker.io/me/…), and those of other registries.
push() { # TAG
    docker image tag "$LOCAL" "$NAME:$1" || return # `set -e` does not hold within $(…)
    docker push "$NAME:$1" | tee >(cat >&2) | sed -n "s/^$1: digest: \(sha256:[0-9a-f]*\) .*/\1/p"
}

push "$(label version)-$VARIANT" >/dev/null
digest=$(push "$VARIANT")
[ -n "$digest" ] || die "$NAME:$VARIANT is pushed, but docker push did not say its digest."
echo "$NAME@$digest"
