#!/usr/bin/env bash
# Runs the long tests (pyproject.toml) and the chaos tests, and writes their table into docs/explanation/survival.md.
# Then runs the property tests with more examples. Arguments are pytest's. There are four parts, one after the other, or
# those that PARTS names:
#   containers  tests that do not depend on time, two files at once, because each leaves processors idle
#   timed       tests of how fast a cluster stops or recovers, and those that write the table
#   inside      the long tests inside the image
#   properties  the property tests
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/parts.sh

readonly ALL_PARTS='containers timed inside properties'
for name in ${PARTS:=$ALL_PARTS}; do
    case " $ALL_PARTS " in
        *" $name "*) ;;
        *) echo "PARTS: received \"$name\"; accepted: $ALL_PARTS, separated by spaces." >&2 && exit 78 ;;
    esac
done

# The files with the longest tests come first, and each file runs in one process.
LONGEST_FIRST=(tests/cluster/test_{jax,keras_fit}.py)
ALONE=(tests/cluster/test_{chaos,docker_stop,fewer_workers,lost_worker,recovery,slow_worker,stalled_step,start_up,stopping,waits}.py)
PYTEST=(.venv/bin/python -m pytest)
readonly LONGEST_FIRST ALONE PYTEST
all_but "${LONGEST_FIRST[@]}" "${ALONE[@]}"

wanted() { # PART COMMAND...
    case " $PARTS " in
        *" $1 "*) part "${@:2}" ;;
    esac
}

wanted containers "${PYTEST[@]}" -m long --numprocesses 2 --dist loadfile --no-loadscope-reorder \
    "${LONGEST_FIRST[@]}" "${rest[@]}" tests/unit "$@"
wanted timed "${PYTEST[@]}" -m 'long or chaos' --chaos-table=docs/explanation/survival.md "${ALONE[@]}" "$@"
wanted inside scripts/inside.sh tests/inside -m long "$@"
wanted properties "${PYTEST[@]}" tests/unit -m hypothesis --hypothesis-profile thorough "$@"
exit "$status"
