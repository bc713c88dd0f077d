#!/usr/bin/env bash
# Checks GitHub's files, and others with a published form. The forms come with check-jsonschema: no network.
# actionlint, which knows far more of workflows, has no package that could be locked: it is run where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

form() { .venv/bin/check-jsonschema --quiet --builtin-schema "vendor.$1" "${@:2}"; }

form github-workflows .github/workflows/*.yml
form github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/wish.yml
form github-issue-config .github/ISSUE_TEMPLATE/config.yml
form renovate renovate.json
.venv/bin/pre-commit validate-config .pre-commit-config.yaml

if command -v actionlint >/dev/null; then
    actionlint -shellcheck .venv/bin/shellcheck .github/workflows/*.yml
else
    echo "lint: the workflows were checked by their form alone: actionlint is not installed (https://github.com/rhysd/actionlint)."
fi
