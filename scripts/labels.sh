#!/usr/bin/env bash
# Prints the labels that depend on the place and time of a build, as NAME=VALUE lines: labels.sh BASE.
# Unknown values are omitted: the digest of a base that was never in a registry, the source without a git remote.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BASE=${1:?usage: labels.sh BASE} OCI=org.opencontainers.image

# Prints the repository's public address, without a password. A path on this machine is omitted.
source_url() {
    local url=${SOURCE_URL:-}
    [ -n "$url" ] || url=$(git remote get-url origin 2>/dev/null) || true
    case $url in
        https://* | http://*) echo "$url" | sed -E 's|^(https?://)[^/]*@|\1|; s|\.git$||' ;;
        ssh://*) echo "$url" | sed -E 's|^ssh://([^/]*@)?|https://|; s|^(https://[^/:]*):[0-9]+/|\1/|; s|\.git$||' ;;
        [!/.]*@*:*) echo "$url" | sed -E 's|^[^/]*@([^:/]*):|https://\1/|; s|\.git$||' ;;
    esac
}

# The commit's date, not the clock's, so that two builds of one commit are the same image.
created() { TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || true; }

# Prints the registry's digest: name@sha256:…
base_digest() { docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$BASE" 2>/dev/null | sed -n 's/.*@//p' | head -n 1; }

label() { # NAME VALUE
    [ -z "$2" ] || echo "$OCI.$1=$2"
}

label source "$(source_url)"
label created "$(created)"
label base.name "${BASE%@*}"
label base.digest "$(base_digest || true)"
