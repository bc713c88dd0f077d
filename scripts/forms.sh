#!/usr/bin/env bash
# Checks GitHub's files, and others with a published schema. check-jsonschema has the schemas, so no network is needed.
# actionlint checks workflows more thoroughly. It has no package that could be locked, so it runs only if it is installed.
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
    echo "lint: actionlint is not installed (https://github.com/rhysd/actionlint), so only the workflows' schema was checked."
fi
