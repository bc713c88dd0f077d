"""The exact message of a refusal."""

from __future__ import annotations

import pytest

from entrypoint.errors import ConfigurationError, Problem, render, signal_name


def test_message_has_a_line_a_problem() -> None:
    problems = [
        Problem("WORKER_INDEX", "7", "0 to 1, because WORKER_HOSTS names 2 workers"),
        Problem("WORKER_HOSTS", None, "a list", "For example a:1."),
    ]
    assert render(problems) == (
        "cluster-trainer: 2 problems in the configuration\n"
        "\n"
        '  WORKER_INDEX: received "7"; accepted: 0 to 1, because WORKER_HOSTS names 2 workers.\n'
        "  WORKER_HOSTS: received nothing; accepted: a list. For example a:1.\n"
        "\n"
        "Nothing was started. docs/reference/variables.md explains every variable."
    )


def test_one_problem_is_a_problem() -> None:
    assert render([Problem("A", "b", "c")]).startswith("cluster-trainer: 1 problem in the")


def test_a_note_stands_after_the_problems() -> None:
    assert '"b"; accepted: c.\n  (Why.)\n\nNothing' in render([Problem("A", "b", "c")], ["Why."])


def test_shortens_long_values() -> None:
    assert f'"{"x" * 199}…"' in render([Problem("A", "x" * 201, "b")])


def test_a_value_cannot_add_lines_or_colours() -> None:
    message = render([Problem("A", "x\n\x1b[31m\ud800\u2028", "b")])
    assert r'"x\n\x1b[31m\ud800\u2028"' in message


def test_hides_what_a_name_calls_secret() -> None:
    assert "hunter2" not in render([Problem("CLUSTER_TOKEN", "hunter2", "b")])


def test_shows_at_most_fifty_problems() -> None:
    lines = render([Problem("A", "b", "c")] * 1000).splitlines()
    assert "1000 problems" in lines[0]
    assert lines[-3] == "  … and 950 more"


def test_the_exit_code_says_that_trying_again_is_useless() -> None:
    assert ConfigurationError([]).exit_code == 78


def test_a_real_time_signal_has_only_a_number() -> None:
    assert [signal_name(number) for number in (15, 35)] == ["SIGTERM", "signal 35"]


@pytest.mark.parametrize(
    "name",
    [
        "WORKER_HOSTS (file /run/secrets/hosts)",
        "WORKER_HOSTS (file /run/secrets/hosts), entry 3",
        "TF_CONFIG (file /etc/api-key.json) cluster.worker[1]",
        "/workspace/keys/requirements.txt",
    ],
)
def test_a_path_beside_the_name_hides_nothing(name: str) -> None:
    assert 'received "hosta:x"' in render([Problem(name, "hosta:x", "b")])


@pytest.mark.parametrize(
    "name",
    [
        "CLUSTER_TOKEN (file /etc/hosts)",
        "--env API_KEY",
        "/opt/ml/input/config/hyperparameters.json api-key",
        "CLUSTER_TOKEN and CLUSTER_TOKEN_FILE",
    ],
)
def test_a_secrets_name_beside_a_path_hides_its_value(name: str) -> None:
    assert "hunter2" not in render([Problem(name, "hunter2", "b")])
