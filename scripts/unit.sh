#!/usr/bin/env bash
# Runs the tests that need no Docker; or those of them that the arguments, which are pytest's, name.
set -euo pipefail
cd "$(dirname "$0")/.."

# More than there are processors: most of the time goes by in waiting, for time limits and restarts.
exec .venv/bin/python -m pytest --numprocesses 6 tests/unit "$@"
