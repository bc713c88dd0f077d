#!/usr/bin/env bash
# Runs the tests that need no Docker. Arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."

# Otherwise each process would compile all tests.
unset PYTHONDONTWRITEBYTECODE
# More processes than processors: tests mostly wait, for time limits and restarts.
exec .venv/bin/python -m pytest --numprocesses 6 --dist worksteal tests/unit "$@"
