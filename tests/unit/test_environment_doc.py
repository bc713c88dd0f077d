"""docs/environment.md says of every variable what the code says of it."""

from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from cluster_trainer.settings.config import ACCEPTED, TrainerConfig, setting_names, variable_of
from entrypoint.settings.options import VARIABLES

DOCUMENT = Path(__file__).parents[2] / "docs/environment.md"


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def entrypoint_rows():
    for variable in VARIABLES.values():
        default = f"`{variable.default}`" if variable.default else ""
        yield row(
            f"`{variable.name}`",
            default,
            variable.purpose,
            variable.accepted,
            f"`{variable.example}`",
        )


def trainer_rows():
    for name in setting_names():
        field = TrainerConfig.model_fields[name]
        assert field.default is not PydanticUndefined
        default = "" if field.default is None else f"`{field.default}`"
        flag = f"`--{name.replace('_', '-')}`"
        accepted = ACCEPTED.get(name, "")
        yield row(f"`{variable_of(name)}`", flag, default, field.description, accepted)


@pytest.mark.parametrize("expected", [*entrypoint_rows(), *trainer_rows()])
def test_every_variable_has_its_line(expected):
    assert expected in DOCUMENT.read_text().splitlines()


def test_the_document_has_no_line_of_a_variable_that_is_gone():
    lines = DOCUMENT.read_text().splitlines()
    documented = {line for line in lines if line.startswith(("| `TRAINER_", "| `WORKER_"))}
    assert documented <= {*entrypoint_rows(), *trainer_rows()}
