"""Requirements: where their packages belong, and what a failure of pip's means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.errors import ConfigurationError, Problem
from entrypoint.packages.pip_failure import verdict_on
from entrypoint.packages.requirements import Requirements, find_requirements
from entrypoint.settings.environ import read_environ

NO_MATCH = (
    "ERROR: Could not find a version that satisfies the requirement tiny (from versions: none)\n"
    "ERROR: No matching distribution found for tiny\n"
)
SKIPPED = "Could not fetch URL https://user:****@index.example/simple/tiny/: {} - skipping\n"
CONFLICT = """\
ERROR: Cannot install numpy==1.26.4 because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/
The conflict is caused by:
    The user requested numpy==1.26.4
    The user requested (constraint) numpy==2.4.6

To fix this you could try to:
"""


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., Requirements | None]:
    """Return a function from a requirements.txt and variables to what is found of it."""
    (tmp_path / "opt/pip").mkdir(parents=True)
    (tmp_path / "opt/pip/constraints.txt").write_text("numpy==2.4.6\n")

    def ask(text: str | None = None, **environ: str) -> Requirements | None:
        if text is not None:
            (tmp_path / "requirements.txt").write_text(text)
        variables = read_environ(environ, tmp_path, root=tmp_path)
        return find_requirements(variables, str(tmp_path))

    return ask


def test_there_may_be_none(find: Callable) -> None:
    assert find() is None
    assert find("\n# nothing yet\n") is None
    assert find("tiny\n", REQUIREMENTS_FILE="none") is None


def test_a_file_that_is_named_has_to_be_there(find: Callable) -> None:
    with pytest.raises(ConfigurationError, match=r"REQUIREMENTS_FILE: .* It does not exist"):
        find(REQUIREMENTS_FILE="other.txt")


def test_the_folder_is_named_after_all_that_decides(find: Callable, tmp_path: Path) -> None:
    def folder() -> str:
        return find("tiny\n-r more.txt\n").folder

    folders = [folder(), folder()]
    (tmp_path / "more.txt").write_text("tiny2\n-r more.txt\n")
    folders.append(folder())
    (tmp_path / "more.txt").write_text("tiny3\n")
    folders.append(folder())
    (tmp_path / "opt/pip/constraints.txt").write_text("numpy==2.5.0\n")
    folders.append(folder())
    assert folders[0] == folders[1]
    assert len(set(folders)) == 4
    assert {Path(one).parent for one in folders} == {Path("/data/.packages")}


def test_a_command_finds_packages_and_their_programs_last(find: Callable) -> None:
    requirements = find("tiny\n")
    environment = requirements.added_to({"PATH": "/bin", "A": "b"})
    assert environment["PATH"] == f"/bin:{requirements.folder}/bin"
    assert environment["PACKAGES_DIR"].startswith(f"{requirements.folder}/lib/python3.")
    assert environment["A"] == "b"


@pytest.mark.parametrize(
    "said",
    [
        SKIPPED.format("connection error: [Errno 111] Connection refused") + NO_MATCH,
        SKIPPED.format("(Caused by ResponseError('too many 503 error responses'))") + NO_MATCH,
        SKIPPED.format("index.example didn't respond within 15.0 seconds") + NO_MATCH,
        "ERROR: <IncompleteDownloadError: incomplete-download>\n",
    ],
)
def test_a_network_may_come_back(said: str) -> None:
    code, reason = verdict_on(said, "requirements.txt")
    assert code == 75
    assert reason.startswith("the packages of requirements.txt could not be fetched: ")


@pytest.mark.parametrize(
    ("said", "received", "advice"),
    [
        (CONFLICT, "numpy==1.26.4", "The user requested (constraint) numpy==2.4.6"),
        (SKIPPED.format("404 Client Error: Not Found") + NO_MATCH, "tiny", "or the version is wr"),
        (f"No sources permitted for tiny: https://x\n{NO_MATCH}", "tiny", "The image has no compi"),
        (
            SKIPPED.format("403 Client Error: Forbidden") + NO_MATCH,
            "403 Client Er",
            "PIP_INDEX_URL",
        ),
        (SKIPPED.format("certificate verify failed (_ssl.c:1)"), "certificate verif", "PIP_CERT"),
        ("ERROR: Invalid requirement: 'a : b': Expected end\n    a : b\n", "'a : b'", "Expected e"),
        ("ERROR: Cannot find command 'git'\n", "Cannot find command 'git'", "pip says: Cannot f"),
        ("Killed\n", "", "pip says: Killed"),
    ],
)
def test_a_mistake_is_said_with_pips_own_words(said: str, received: str, advice: str) -> None:
    problem = verdict_on(said, "requirements.txt")
    assert isinstance(problem, Problem)
    assert problem.received is not None
    assert problem.received.startswith(received)
    assert advice in problem.advice
