#!/usr/bin/env bash
# Pushes cluster-trainer:VARIANT to REGISTRY, such as ghcr.io/name: push.sh cpu|gpu|cpu-r|gpu-r. In the registry, its
# names are REGISTRY/cluster-trainer:VARIANT and REGISTRY/cluster-trainer:VERSION-VARIANT. Run `docker login` first.
# Prints the name with the registry's digest.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VARIANT=${1:?usage: push.sh cpu|gpu|cpu-r|gpu-r}
readonly LOCAL=cluster-trainer:$VARIANT

die() { echo "push: $*" >&2; exit 1; }

label() { docker image inspect --format "{{index .Config.Labels \"org.opencontainers.image.$1\"}}" "$LOCAL"; }

[ -n "${REGISTRY:-}" ] || die "REGISTRY is not set: name the registry to push to, for example make push REGISTRY=ghcr.io/name."
docker image inspect "$LOCAL" >/dev/null 2>&1 || die "there is no $LOCAL: make build-$VARIANT builds it."
revision=$(label revision)
case $revision in
    unknown | *-modified)
        [ -n "${ALLOW_MODIFIED:-}" ] ||
            die "$LOCAL was built from uncommitted files (revision $revision). Commit, build, and push; or set ALLOW_MODIFIED=1."
        ;;
esac

readonly NAME=${REGISTRY%/}/cluster-trainer

# Pushes one name, shows the progress, and prints the digest. It is read from the end of the push: an image's own list
# of digests has other names (me/… for docker.io/me/…), and those of other registries.
push() { # TAG
    docker image tag "$LOCAL" "$NAME:$1" || return # `set -e` does not hold within $(…)
    docker push "$NAME:$1" | tee >(cat >&2) | sed -n "s/^$1: digest: \(sha256:[0-9a-f]*\) .*/\1/p"
}

push "$(label version)-$VARIANT" >/dev/null
digest=$(push "$VARIANT")
[ -n "$digest" ] || die "$NAME:$VARIANT was pushed, but docker push did not print its digest."
echo "$NAME@$digest"
