#!/usr/bin/env bash
# Runs the tests, in two parts; or those that TESTS names, one after the other. Arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."

# Alone, these leave a processor idle for much of their time, and none asks how fast a cluster ends or comes back.
# The longest first; flowers, which need most, beside the gate, which mostly waits.
readonly SIDE_BY_SIDE=(
    tests/cluster/test_{flowers,gate}.py
    tests/image/test_inside.py
    tests/cluster/test_{r,same_weights,evaluation,preparing,mnist,own_model,own_code,sagemaker}.py
    tests/unit
    tests/image
)
readonly INTERRUPTED=2 NONE_SELECTED=5 # pytest's exit codes
status=$NONE_SELECTED

part() { # PYTEST_ARGUMENTS...
    local code=0
    .venv/bin/python -m pytest "$@" || code=$?
    case $code in
        0) [ "$status" != "$NONE_SELECTED" ] || status=0 ;;
        "$NONE_SELECTED") ;; # all that `-k` names is in the other part
        "$INTERRUPTED") exit "$code" ;;
        *) status=$code ;;
    esac
}

if [ -n "${TESTS-}" ]; then
    # shellcheck disable=SC2086  # several, one word each
    exec .venv/bin/python -m pytest $TESTS "$@"
fi
part --numprocesses 2 --dist loadfile --no-loadscope-reorder "${SIDE_BY_SIDE[@]}" "$@"
part tests/cluster "${SIDE_BY_SIDE[@]/#/--ignore=}" "$@"
exit "$status"
