"""The container's arguments become a request."""

from __future__ import annotations

import pytest

from entrypoint.arguments import Request, parse_arguments

TRAINER = ("python", "-P", "-m", "trainer")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Request(TRAINER, is_trainer=True)),
        (["--epochs", "3"], Request((*TRAINER, "--epochs", "3"), is_trainer=True)),
        (["train"], Request(TRAINER, is_trainer=True)),  # as SageMaker runs a container
        (["train", "--epochs", "3"], Request((*TRAINER, "--epochs", "3"), is_trainer=True)),
        (["explain", "train"], Request(TRAINER, is_trainer=True, explain=True)),
        (["selftest", "--json"], Request((*TRAINER, "selftest", "--json"), is_trainer=False)),
        (
            ["explain", "selftest"],
            Request((*TRAINER, "selftest"), is_trainer=False, explain=True),
        ),
        (["bash", "-c", "true"], Request(("bash", "-c", "true"), is_trainer=False)),
        ([""], Request(("",), is_trainer=False)),
        (["explain"], Request(TRAINER, is_trainer=True, explain=True)),
        (["explain", "--json"], Request(TRAINER, is_trainer=True, explain=True, as_json=True)),
        (
            ["explain", "--json", "--epochs", "3"],
            Request((*TRAINER, "--epochs", "3"), is_trainer=True, explain=True, as_json=True),
        ),
        (["explain", "bash"], Request(("bash",), is_trainer=False, explain=True)),
        (["bash", "explain"], Request(("bash", "explain"), is_trainer=False)),
    ],
)
def test_arguments(arguments: list[str], expected: Request) -> None:
    assert parse_arguments(arguments) == expected
