#!/usr/bin/env bash
# Runs the long tests (pyproject.toml) and the chaos tests, and writes their table into docs/explanation/survival.md.
# Then runs the property tests with more examples. Arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/parts.sh

part .venv/bin/python -m pytest -m 'long or chaos' --chaos-table=docs/explanation/survival.md "$@"
part scripts/inside.sh tests/inside -m long "$@"
part .venv/bin/python -m pytest tests/unit -m hypothesis --hypothesis-profile thorough "$@"
exit "$status"
