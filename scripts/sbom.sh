#!/usr/bin/env bash
# Writes the packages of the image IMAGE to .build/sbom-VARIANT.cdx.json, as a CycloneDX document. The tools are mounted
# into the container that lists them. It has no network, and writes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly IMAGE=${IMAGE:-cluster-trainer:cpu}
readonly LOCK=requirements/sbom.txt TOOLS=.build/sbom-tools
file=.build/sbom-$(echo "${IMAGE##*[:/]}" | tr -c '[:alnum:]._\n' -).cdx.json
readonly file

if ! cmp -s $TOOLS/lock.txt $LOCK; then
    rm -rf $TOOLS
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --target $TOOLS --requirement $LOCK
    cp $LOCK $TOOLS/lock.txt
fi

labels=$(docker image inspect --format '{{json .Config.Labels}}' "$IMAGE")
id=$(docker image inspect --format '{{.Id}}' "$IMAGE")
docker run --rm --network none --read-only --tmpfs /tmp --entrypoint /opt/venv/bin/python \
    --volume "$PWD/$TOOLS:/opt/sbom-tools:ro" --volume "$PWD/scripts/sbom.py:/opt/sbom.py:ro" \
    "$IMAGE" -I /opt/sbom.py /opt/sbom-tools "$id" "$labels" >"$file.new"
mv "$file.new" "$file"
echo "$file: $(grep -c '"purl":' "$file") packages of $IMAGE"
