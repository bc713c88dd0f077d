#!/usr/bin/env bash
# Runs all tests but the long ones (pyproject.toml), or those that TESTS names. Arguments are pytest's.
# There are three parts, one after the other:
#   1. tests that need no Docker
#   2. tests that do not depend on time, several at once, because each leaves processors idle; and the tests inside the
#      image at the same time
#   3. tests of how fast a cluster stops or recovers
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/parts.sh

unset PYTHONDONTWRITEBYTECODE # otherwise each process would compile all tests
readonly AT_ONCE=3
ALONE=(tests/cluster/test_{stopping,docker_stop,lost_worker,chaos}.py)
# Each file runs in one process. Files that compute most come first, so that they run beside files that mostly wait.
LONGEST_FIRST=(tests/cluster/test_{keras_fit,docker_compose_up,kept_fit,stop_and_resume,same_weights,ring,gate,defaults}.py)
PYTEST=(.venv/bin/python -m pytest)
readonly ALONE LONGEST_FIRST PYTEST # separate, because bash 3.2 does not expand braces in `readonly`

if [ -n "${TESTS-}" ]; then
    inside=() others=()
    for path in $TESTS; do
        case $path in
            tests/inside* | patches/*) inside+=("$path") ;;
            *) others+=("$path") ;;
        esac
    done
    [ "${#inside[@]}" = 0 ] || part scripts/inside.sh "${inside[@]}" "$@"
    [ "${#others[@]}" = 0 ] || part "${PYTEST[@]}" "${others[@]}" "$@"
    exit "$status"
fi
all_but "${LONGEST_FIRST[@]}" "${ALONE[@]}"
part scripts/unit.sh "$@"

printed=$(mktemp)
scripts/inside.sh tests/inside "$@" > "$printed" 2>&1 &
readonly INSIDE=$! printed
# Ctrl-C does not reach a script's background processes.
trap 'kill "$INSIDE" 2> /dev/null || true; rm -f "$printed"' EXIT
# shellcheck disable=SC2329 # `part` calls it
end_of_inside() {
    local code=0
    wait "$INSIDE" || code=$?
    trap 'rm -f "$printed"' EXIT
    cat "$printed"
    return "$code"
}
part "${PYTEST[@]}" --numprocesses $AT_ONCE --dist loadfile --no-loadscope-reorder \
    "${LONGEST_FIRST[@]}" "${rest[@]}" "$@"
part end_of_inside
part "${PYTEST[@]}" "${ALONE[@]}" "$@"
exit "$status"
