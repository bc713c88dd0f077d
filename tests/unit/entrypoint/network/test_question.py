"""The arguments of the command `network`."""

from __future__ import annotations

import pytest

from entrypoint.errors import ConfigurationError
from entrypoint.network.question import Question, read_question
from entrypoint.network.speed_up import Training


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        ([], Question()),
        (["--json"], Question(None, as_json=True)),
        (["--parameters", "25e6"], Question(Training(25e6))),
        (["--parameters=350000", "--step-ms=4.4"], Question(Training(350_000, 0.0044))),
        (
            ["--step-ms", "250", "--json", "--parameters", "1"],
            Question(Training(1, 0.25), as_json=True),
        ),
    ],
)
def test_reads(arguments, question):
    assert read_question(arguments) == question


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--parameters"], ["--parameters"]),
        (["--parameters", "many"], ["--parameters"]),
        (["--parameters=0"], ["--parameters"]),
        (["--parameters=nan"], ["--parameters"]),
        (["--parameters", "--json"], ["--parameters"]),
        (["--step-ms", "250"], ["--parameters"]),
        (["--step-ms", "-1", "--parameters", "inf"], ["--step-ms", "--parameters"]),
        (["--rate"], ["network"]),
        (["train", "x"], ["network", "network"]),
    ],
)
def test_refuses_and_names_all_that_is_wrong(arguments, named):
    with pytest.raises(ConfigurationError) as caught:
        read_question(arguments)
    names = [problem.name for problem in caught.value.problems]
    assert [name.split()[-1] for name in names] == named
