"""The table of variables is complete, and its examples are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.errors import is_secret
from entrypoint.settings.environ import read_environ
from entrypoint.settings.options import OPTIONS, VARIABLES, read_options
from entrypoint.sources import SOURCES, variables_of

NOT_OURS = {
    *("CLUSTER_TRAINER_VERSION", "CLUSTER_TRAINER_REVISION"),  # set by the image
    *("CUDA_VISIBLE_DEVICES", "TMPDIR", "TF_CPP_MIN_LOG_LEVEL"),  # conventions of others
    *("TRAINER_COLLECTIVES", "TRAINER_RUN_DIR"),  # the trainer's
    *("SKYPILOT_TASK_ID", "SKYPILOT_NUM_GPUS_PER_NODE", "SM_HPS"),  # a scheduler's settings
}

PACKAGE = Path(__file__).resolve().parents[4] / "entrypoint"


def test_every_variable_that_the_code_reads_is_in_the_table() -> None:
    text = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    reader = r"(?:\.get|\.given|whole_number)"
    read = set(re.findall(rf'{reader}\((?:environ, )?"([A-Z_]+)"', text))
    read |= {declared["variable"].name for declared in OPTIONS.values()}
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


@pytest.mark.parametrize(
    "name",
    [
        *("CLUSTER_TOKEN", "TRAINER_SECRET_X", "my_password", "API_KEY", "--api-key", "apikey"),
        *("MASTERKEYS", "COMMONKEY", "MONKEY_KEY", "TOKENIZER_TOKEN", "myMonkey"),
    ],
)
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["TRAINER_MONKEY", "--tokenizer", "num_keypoints", "KEYWORDS"])
def test_a_word_that_only_looks_like_a_secrets_hides_nothing(name: str) -> None:
    assert not is_secret(name)


def test_every_default_is_accepted(tmp_path: Path) -> None:
    options, problems = read_options(read_environ({}, tmp_path))
    assert not problems
    for field, declared in OPTIONS.items():
        assert (getattr(options, field) is None) == (declared["variable"].default is None)


def test_all_wrong_options_are_named_and_have_their_defaults(tmp_path: Path) -> None:
    wrong = {"RENDEZVOUS_TIMEOUT": "-1", "STOP_GRACE_SECONDS": "soon", "LOG_FORMAT": "xml"}
    options, problems = read_options(read_environ({**wrong, "MAX_RESTARTS": "7"}, tmp_path))
    assert {problem.name: problem.received for problem in problems} == wrong
    assert [problem.accepted for problem in problems] == [
        VARIABLES[problem.name].accepted for problem in problems
    ]
    assert (options.rendezvous_timeout_seconds, options.stop_grace_seconds) == (300, 8.0)
    assert (options.log_format, options.max_restarts) == ("text", 7)
