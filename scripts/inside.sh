#!/usr/bin/env bash
# Runs tests of tests/inside in a container of IMAGE, which has TensorFlow: inside.sh PATHS... [pytest's options].
# The container gets the tests from the repository, and pytest from .build. All else is the image's own.
# FOLDER=on_jax takes them from tests/on_jax, for the image with JAX.
# For scripts/mutants: TESTS_OF is another checkout to take the tests from, DOCKER_OPTIONS are options of `docker run`.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly IMAGE=${IMAGE:-cluster-trainer:cpu}
readonly TESTS_OF=${TESTS_OF:-$PWD}
readonly FOLDER=${FOLDER:-inside}
readonly LOCK=requirements/inside.txt TOOLS=.build/inside-tools REPORT=.build/report
# One process keeps one processor busy, and no test depends on time.
readonly OPTIONS=(-ra --strict-markers --durations 10 --durations-min 1 --timeout 600 -p no:cacheprovider
    --numprocesses auto --maxprocesses 4 --dist worksteal
    -o 'markers=long: see pyproject.toml' -m 'not long')

if ! cmp -s $TOOLS/lock.txt $LOCK; then
    rm -rf $TOOLS
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --target $TOOLS --requirement $LOCK
    cp $LOCK $TOOLS/lock.txt
fi

scripts/build.sh report # the packages of `make report`

color=no
[ ! -t 1 ] || color=yes # with a terminal of its own, the container would not get Ctrl-C

read -r -a docker_options <<< "${DOCKER_OPTIONS-}"
# MAX_RESTARTS: tests are not retried.
exec docker run --rm --network none --user "$(id -u):$(id -g)" \
    --tmpfs /tmp:mode=1777,exec --workdir /project \
    --volume "$TESTS_OF/tests/$FOLDER:/project/tests/$FOLDER:ro" --volume "$TESTS_OF/patches:/project/patches:ro" \
    --volume "$PWD/$TOOLS:/opt/inside-tools:ro" --volume "$PWD/$REPORT:/opt/report:ro" \
    --env PYTHONPATH=/opt/inside-tools:/opt/report --env MAX_RESTARTS=0 --env CLUSTER_TRAINER_ENGINE \
    ${docker_options[@]+"${docker_options[@]}"} \
    "$IMAGE" python -m pytest --rootdir /project --color $color "${OPTIONS[@]}" "$@"
