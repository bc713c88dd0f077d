"""The table of variables is complete, and its examples are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.sources import SOURCES
from entrypoint.variables import VARIABLES, is_secret

PACKAGE = Path(__file__).resolve().parents[3] / "entrypoint"


def test_every_variable_that_the_code_reads_is_in_the_table() -> None:
    text = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    read = set(re.findall(r'(?:\.get|\.given|whole_number)\((?:environ, )?"([A-Z_]+)"', text))
    assert read - {"CLUSTER_TRAINER_VERSION"} == set(VARIABLES) - {"ENV_FILE"} | {"ENV_FILE"}


def test_sentences_are_complete() -> None:
    for variable in VARIABLES.values():
        assert variable.purpose.endswith(".")
        assert not variable.accepted.endswith(".")


def test_cluster_source_accepts_every_source() -> None:
    accepted = VARIABLES["CLUSTER_SOURCE"].accepted.replace(" or ", ", ").split(", ")
    assert accepted == ["auto", *SOURCES, "none"]


@pytest.mark.parametrize("name", VARIABLES)
def test_examples_are_accepted(answer: Callable, tmp_path: Path, name: str) -> None:
    (tmp_path / "cluster.env").touch()
    hosts = {"WORKER_HOSTS": VARIABLES["WORKER_HOSTS"].example, "WORKER_INDEX": "0"}
    example = VARIABLES[name].example.replace("/workspace", str(tmp_path))
    assert answer({**hosts, name: example}).resolution.rank == 0


@pytest.mark.parametrize("name", ["CLUSTER_TOKEN", "TRAINER_SECRET_X", "my_password", "API_KEY"])
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)
