"""The table of variables is complete, and its examples are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.settings.variables import VARIABLES, is_secret
from entrypoint.sources import SOURCES, variables_of

NOT_OURS = {
    *("CLUSTER_TRAINER_VERSION", "CLUSTER_TRAINER_REVISION"),  # the image says it
    *("CUDA_VISIBLE_DEVICES", "TMPDIR"),  # others' conventions
    *("SKYPILOT_TASK_ID", "SKYPILOT_NUM_GPUS_PER_NODE", "SM_HPS"),  # settings of a scheduler's
}

PACKAGE = Path(__file__).resolve().parents[4] / "entrypoint"


def test_every_variable_that_the_code_reads_is_in_the_table() -> None:
    text = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    reader = r"(?:\.get|\.given|whole_number|_number|_seconds)"
    read = set(re.findall(rf'{reader}\((?:environ, )?"([A-Z_]+)"', text))
    schedulers = {name for source in SOURCES.values() for name in variables_of(source)}
    assert read - NOT_OURS - (schedulers - set(VARIABLES)) == set(VARIABLES)


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
