"""Values come from the environment, VAR_FILE and .env. Files that cannot be read are refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from entrypoint.settings.environ import Environ, Value, read_environ
from entrypoint.settings.files import read_dotenv
from entrypoint.settings.forms import parse_whole_number


def read(directory: Path, **environ: str) -> Environ:
    return read_environ(environ, directory)


def names(environ: Environ) -> list[str]:
    return [problem.name for problem in environ.problems]


def test_a_variable_comes_from_the_environment(tmp_path: Path) -> None:
    assert read(tmp_path, A="1").values == {"A": Value("1", "environment")}


def test_the_table_has_the_defaults(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert [found.get(name) for name in ("WORKER_PORT", "CLUSTER_SOURCE", "WORKER_HOSTS")] == [
        "2222",
        "auto",
        None,
    ]


@pytest.mark.parametrize("name", ["WORKER_HOSTS", "TF_CONFIG", "WORKER_PORT", "TRAINER_EPOCHS"])
def test_file_form_gives_the_value_without_its_last_newline(tmp_path: Path, name: str) -> None:
    path = tmp_path / "value"
    path.write_bytes(b"\xef\xbb\xbf 1\r\n\n")  # as Windows editors save it
    assert read(tmp_path, **{f"{name}_FILE": str(path)}).values == {
        name: Value(" 1", f"file {path}"),
    }


@pytest.mark.parametrize("name", ["SOMETHING_FILE", "ENV_FILE_FILE", "TRAINER__FILE"])
def test_other_names_with_that_ending_are_left_alone(tmp_path: Path, name: str) -> None:
    expected = {} if name == "TRAINER__FILE" else {name: Value("/nowhere", "environment")}
    found = read(tmp_path, **{name: "/nowhere"})
    assert found.values == (expected or {name: Value("/nowhere", "environment")})
    assert not found.problems


def test_refuses_both_forms(tmp_path: Path) -> None:
    found = read(tmp_path, WORKER_HOSTS="a:1", WORKER_HOSTS_FILE="/run/secrets/hosts")
    (problem,) = found.problems
    assert problem.name == "WORKER_HOSTS and WORKER_HOSTS_FILE"
    assert problem.received == "a:1 and /run/secrets/hosts"


def test_an_empty_option_counts_as_unset(tmp_path: Path) -> None:
    (tmp_path / "epochs").write_text("3")
    found = read(tmp_path, TRAINER_EPOCHS="", TRAINER_EPOCHS_FILE="epochs", CLUSTER_SOURCE="")
    assert found.values == {"TRAINER_EPOCHS": Value("3", "file epochs")}
    assert not found.problems


def make_missing(_path: Path) -> None:
    """Leave it missing."""


def make_directory(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")


def make_nul(path: Path) -> None:
    path.write_bytes(b"a:1\x00b:1")


def make_large(path: Path) -> None:
    path.write_bytes(b"a" * ((1 << 20) + 1))


def make_loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_missing, "does not exist"),
        (make_directory, "is a directory"),
        (make_pipe, "not a regular file"),
        (make_binary, "not UTF-8"),
        (make_nul, "NUL"),
        (make_large, "larger than 1 MiB"),
        (make_loop, "cannot be read"),
    ],
)
@pytest.mark.parametrize("name", ["WORKER_HOSTS_FILE", "ENV_FILE"])
def test_says_why_a_file_cannot_be_read(
    tmp_path: Path, make: object, reason: str, name: str
) -> None:
    path = tmp_path / "named"
    make(path)
    (problem,) = read(tmp_path, **{name: str(path)}).problems
    assert (problem.name, problem.received) == (name, str(path))
    assert reason in problem.advice


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    """A file that this process may not read, even if root runs the tests."""
    path = tmp_path / "named"
    path.touch(0o000)
    user = os.geteuid()
    os.seteuid(user or 65534)
    yield path
    os.seteuid(user)


def test_says_that_permission_is_missing(forbidden: Path) -> None:
    (problem,) = read(forbidden.parent, WORKER_HOSTS_FILE=str(forbidden)).problems
    assert "has no permission to read it" in problem.advice


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "\udcff"])
def test_refuses_a_path_that_is_none(tmp_path: Path, path: str) -> None:
    assert names(read(tmp_path, WORKER_INDEX_FILE=path)) == ["WORKER_INDEX_FILE"]


def test_reads_dotenv_and_real_variables_win(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=file\nexport B='x y' # why\nC=$A ${A}\nB2=\nNAME\n# no\n")
    assert read(tmp_path, A="real").values == {
        "A": Value("real", "environment"),
        "B": Value("x y", ".env"),
        "C": Value("$A ${A}", ".env"),
        "B2": Value("", ".env"),
    }


def test_reads_the_file_that_env_file_names(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=default")
    (tmp_path / "other").write_text("A=other")
    assert read(tmp_path, ENV_FILE="other").values["A"] == Value("other", "file other")


def test_file_forms_work_in_dotenv(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a:1\n")
    (tmp_path / ".env").write_text("WORKER_HOSTS_FILE=hosts")
    assert read(tmp_path).values == {"WORKER_HOSTS": Value("a:1", "file hosts")}


def test_a_real_file_form_wins_over_a_plain_one_in_dotenv(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a:1")
    (tmp_path / ".env").write_text("WORKER_HOSTS=b:1")
    found = read(tmp_path, WORKER_HOSTS_FILE="hosts")
    assert found.get("WORKER_HOSTS") == "a:1"
    assert not found.problems


def test_an_empty_real_option_lets_dotenv_fill_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TRAINER_EPOCHS=5")
    assert read(tmp_path, TRAINER_EPOCHS="").get("TRAINER_EPOCHS") == "5"


def test_says_which_line_of_dotenv_is_wrong_and_not_what_it_says(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\n\n\npassword hunter2\n'x=y'=1\n")
    found = read(tmp_path)
    assert names(found) == [".env line 4", ".env line 5"]
    assert "hunter2" not in repr(found.problems)


def test_a_directory_called_dotenv_is_somebodys_virtual_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    assert not read(tmp_path).problems


def test_refuses_a_dotenv_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe")
    assert names(read(tmp_path)) == [".env"]


@pytest.mark.parametrize(("text", "number"), [("0", 0), (" 7\n", 7), ("-1", -1), ("007", 7)])
def test_parses_whole_numbers(text: str, number: int) -> None:
    assert parse_whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "+1", "1.0", "1e3", "1_000", "\u0667", "--1", "1" * 10, "1 2"]
)
def test_refuses_other_numbers(text: str) -> None:
    assert parse_whole_number(text) is None


ONE_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@ONE_FOLDER
@given(st.binary() | st.text("AB='\"\\\n# $x{}é\0", max_size=80).map(str.encode))
def test_any_dotenv_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".env").write_bytes(content)
    found = read_dotenv(None, tmp_path)
    assert all("=" not in name and "\0" not in name + text for name, text in found.values.items())


NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,10}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_characters="\0'\\\r", exclude_categories=["Cs"]))


@ONE_FOLDER
@given(st.dictionaries(NAMES.filter(lambda name: not name.endswith("_FILE")), TEXTS))
def test_quoted_values_survive_a_dotenv(tmp_path: Path, values: dict[str, str]) -> None:
    lines = [f"{name}='{text}'\n" for name, text in values.items()]
    (tmp_path / ".env").write_text("".join(lines), newline="")
    found = read_dotenv(None, tmp_path)
    assert not found.problems
    assert found.values == values
