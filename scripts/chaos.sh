#!/usr/bin/env bash
# Runs the long tests (pyproject.toml) and the chaos tests, and writes their table into docs/explanation/survival.md.
# Then runs the property tests with more examples. Arguments are pytest's. There are four parts, one after the other:
#   1. tests that do not depend on time, two files at once, because each leaves processors idle
#   2. tests of how fast a cluster stops or recovers, and those that write the table
#   3. the long tests inside the image
#   4. the property tests
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/parts.sh

# The files with the longest tests come first, and each file runs in one process.
LONGEST_FIRST=(tests/cluster/test_{jax,keras_fit}.py)
ALONE=(tests/cluster/test_{chaos,docker_stop,fewer_workers,lost_worker,recovery,slow_worker,stalled_step,start_up,stopping,waits}.py)
PYTEST=(.venv/bin/python -m pytest)
readonly LONGEST_FIRST ALONE PYTEST
all_but "${LONGEST_FIRST[@]}" "${ALONE[@]}"

part "${PYTEST[@]}" -m long --numprocesses 2 --dist loadfile --no-loadscope-reorder \
    "${LONGEST_FIRST[@]}" "${rest[@]}" tests/unit "$@"
part "${PYTEST[@]}" -m 'long or chaos' --chaos-table=docs/explanation/survival.md "${ALONE[@]}" "$@"
part scripts/inside.sh tests/inside -m long "$@"
part .venv/bin/python -m pytest tests/unit -m hypothesis --hypothesis-profile thorough "$@"
exit "$status"
