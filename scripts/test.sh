#!/usr/bin/env bash
# Runs the tests, but for the long ones (pyproject.toml); or those that TESTS names. Arguments are pytest's.
# The parts, one after the other: what needs no Docker; what asks nothing of time, several at once, since each leaves a
# processor idle for much of its time, and beside it what runs inside the image; and what asks how fast a cluster ends or
# comes back.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/parts.sh

unset PYTHONDONTWRITEBYTECODE # each process would compile all tests anew
readonly AT_ONCE=3
ALONE=(tests/cluster/test_{stopping,docker_stop,lost_worker,chaos}.py)
# A file is one process's, and they are dealt out in this order: what needs most, beside what mostly waits.
LONGEST_FIRST=(tests/cluster/test_{keras_fit,docker_compose_up,kept_fit,stop_and_resume,same_weights,ring,gate,defaults}.py)
PYTEST=(.venv/bin/python -m pytest)
readonly ALONE LONGEST_FIRST PYTEST # not in one line each: bash 3.2 takes no list with braces there

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
# Each by its name: pytest takes a folder's files in the folder's order, whatever was named before it.
rest=()
for file in tests/cluster/test_*.py tests/image/test_*.py; do
    case " ${ALONE[*]} ${LONGEST_FIRST[*]} " in *" $file "*) ;; *) rest+=("$file") ;; esac
done
part scripts/unit.sh "$@"

printed=$(mktemp)
scripts/inside.sh tests/inside "$@" > "$printed" 2>&1 &
readonly INSIDE=$! printed
# Ctrl-C does not reach what a script has started in the background.
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
