#!/usr/bin/env bash
# Prints the labels that depend on where and when an image is built, NAME=VALUE, one a line: labels.sh BASE.
# What cannot be known is left out: no digest where the base was never in a registry, no source without a remote.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BASE=${1:?usage: labels.sh BASE} OCI=org.opencontainers.image

# The repository's public address. A password in it stays out, and so does a path on this machine.
source_url() {
    local url=${SOURCE_URL:-}
    [ -n "$url" ] || url=$(git remote get-url origin 2>/dev/null) || true
    case $url in
        https://* | http://*) echo "$url" | sed -E 's|^(https?://)[^/]*@|\1|; s|\.git$||' ;;
        ssh://*) echo "$url" | sed -E 's|^ssh://([^/]*@)?|https://|; s|^(https://[^/:]*):[0-9]+/|\1/|; s|\.git$||' ;;
        [!/.]*@*:*) echo "$url" | sed -E 's|^[^/]*@([^:/]*):|https://\1/|; s|\.git$||' ;;
    esac
}

# The commit's date and not the clock's: two builds of one commit are one image, and `make up-local` makes none anew.
created() { TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || true; }

# As the registry has told it: name@sha256:…
base_digest() { docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$BASE" 2>/dev/null | sed -n 's/.*@//p' | head -n 1; }

label() { # NAME VALUE
    [ -z "$2" ] || echo "$OCI.$1=$2"
}

label source "$(source_url)"
label created "$(created)"
label base.name "${BASE%@*}"
label base.digest "$(base_digest || true)"
