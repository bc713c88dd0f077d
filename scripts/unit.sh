#!/usr/bin/env bash
# Runs the tests that need no Docker; or those of them that the arguments, which are pytest's, name.
set -euo pipefail
cd "$(dirname "$0")/.."

# Each process would compile all tests anew.
unset PYTHONDONTWRITEBYTECODE
# More than there are processors: most of the time goes by in waiting, for time limits and restarts.
exec .venv/bin/python -m pytest --numprocesses 6 --dist worksteal tests/unit "$@"
