#!/usr/bin/env bash
# Removes the image ID if a build has left it without a name. An image with a name is somebody's: `docker image rm ID`
# would take its last name away, whichever that is. If a container or another image uses the image, it stays.
#   remove-unnamed.sh ID   ID may be empty
set -euo pipefail

readonly ID=${1-}
[ -n "$ID" ] || exit 0
[ "$(docker image inspect --format '{{len .RepoTags}}' "$ID" 2>/dev/null)" = 0 ] || exit 0
docker image rm "$ID" >/dev/null 2>&1 || true
