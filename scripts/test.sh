#!/usr/bin/env bash
# Runs the tests, but for the long ones (pyproject.toml); or those that TESTS names. Arguments are pytest's.
# The parts, one after the other: what needs no Docker; what runs inside the image; what asks nothing of time, several
# at once, since each leaves a processor idle for much of its time; and what asks how fast a cluster ends or comes back.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly AT_ONCE=3
ALONE=(tests/cluster/test_{stopping,docker_stop,lost_worker,chaos}.py)
# A file is one process's, and the first are dealt out in this order: what needs most, beside what mostly waits.
LONGEST_FIRST=(tests/cluster/test_{tutorials,gate,keras_fit,kept_fit,examples,flowers,same_weights,restart_policies,stop_and_resume}.py)
PYTEST=(.venv/bin/python -m pytest)
readonly ALONE LONGEST_FIRST PYTEST # not in one line each: bash 3.2 takes no list with braces there
readonly INTERRUPTED=2 INTERRUPTED_INSIDE=130 NONE_SELECTED=5 # exit codes; all but the second are pytest's
status=$NONE_SELECTED

part() { # COMMAND...
    local code=0
    "$@" || code=$?
    case $code in
        0) [ "$status" != "$NONE_SELECTED" ] || status=0 ;;
        "$NONE_SELECTED") ;; # all that `-k` names is in other parts
        "$INTERRUPTED" | "$INTERRUPTED_INSIDE") exit "$code" ;;
        *) status=$code ;;
    esac
}

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
part scripts/unit.sh "$@"
part scripts/inside.sh tests/inside "$@"
CLUSTER_TRAINER_ENGINE=off part scripts/inside.sh --numprocesses 0 patches/trainer_multi_worker_test.py "$@"
part "${PYTEST[@]}" --numprocesses $AT_ONCE --dist loadfile --no-loadscope-reorder "${ALONE[@]/#/--ignore=}" \
    "${LONGEST_FIRST[@]}" tests/cluster tests/image "$@"
part "${PYTEST[@]}" "${ALONE[@]}" "$@"
exit "$status"
