"""docs/how-to/schedulers.md explains every contract, and every variable that a contract reads."""

import re
import shlex
from pathlib import Path

import pytest

from entrypoint.export.export import KINDS, export
from entrypoint.export.options import DEFAULTS, ENV
from entrypoint.sources import SOURCES, variables_of
from entrypoint.sources.sagemaker_settings import CHANNEL_PREFIX, HYPERPARAMETER_PREFIX
from entrypoint.sources.vertex import FOLDERS

TEXT = (Path(__file__).parents[2] / "docs/how-to/schedulers.md").read_text()
VARIABLES = [name for source in SOURCES.values() for name in variables_of(source)]
SETTINGS = ["SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR", "SM_HPS", "SKYPILOT_TASK_ID", *FOLDERS]


@pytest.mark.parametrize("name", [*VARIABLES, *SETTINGS, *FOLDERS.values()])
def test_every_variable_is_explained(name):
    assert f"`{name}" in TEXT


@pytest.mark.parametrize("prefix", [CHANNEL_PREFIX, HYPERPARAMETER_PREFIX])
def test_every_prefix_is_explained(prefix):
    assert f"`{prefix}" in TEXT


def test_every_source_has_a_row_in_the_order_of_belief():
    rows = re.findall(r"^\| .* \| `([a-z_]+)` \| ", TEXT, re.MULTILINE)
    assert rows == list(SOURCES)


def test_links_lead_somewhere():
    titles = re.findall(r"^#+ (.*)", TEXT, re.MULTILINE)
    anchors = {title.lower().replace(" ", "-").replace(":", "") for title in titles}
    assert set(re.findall(r"\]\(#([^)]*)\)", TEXT)) <= anchors


EXPORTS = re.findall(
    r"docker run --rm cluster-trainer:cpu (export (?:[^>\n<\\]|\\\n|<\w+>)*) > ", TEXT
)


def test_each_export_that_it_shows_prints_a_file(capfd):
    assert len(EXPORTS) == 7
    for command in EXPORTS:
        _, *arguments = shlex.split(command.replace("\\\n", "").replace("<bucket>", "bucket"))
        assert export(arguments) == 0
        assert "/cluster-trainer:" in capfd.readouterr().out


@pytest.mark.parametrize("option", [*DEFAULTS, ENV])
def test_every_option_of_export_is_explained(option):
    assert re.search(rf"^\| `{option}\b.* \|", TEXT, re.MULTILINE)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_is_explained(kind):
    assert re.search(rf"^\| .*`{kind}`.* the kind of file", TEXT, re.MULTILINE)
