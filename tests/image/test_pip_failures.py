"""The image's pip and an index that fails in many ways: exit codes, causes, and no passwords."""

import json
from pathlib import Path

import pytest

from harness.ended import run_and_remove
from harness.wheels import write_wheel

INDEX = Path(__file__).with_name("failing_index.py")
MAX_SECONDS = 300
PASSING = {
    "refused": "Connection refused",
    "silent": "didn't respond within 2.0 seconds",
    "cut": "incomplete-download",
    "busy": "503",
    "503": "503",
    "504": "504",
    "429": "429",
    "proxy-refused": "Connection refused",
    "file-refused": "Connection refused",
}
"""Case -> words in its message."""
LASTING = {
    "proxy-407": "407 Proxy Authentication Required",
    "proxy-wrong": "bad host",
    "404": "No matching distribution found for tiny",
    "403": "403 Client Error",
    "401": "401 Client Error",
    "source": "No matching distribution found for tiny",
    "no-scheme": "nowhere",
    "no-port": "Port out of range",
    "conflict": "wants 1.0 depends on numpy<2",
    "no-version": "No matching distribution found for tiny==9",
    "no-git": "git",
    "invalid": "Invalid requirement",
    "setting": "invalid floating-point value: 'abc'",
    "switch": "perhaps is not a valid value for pre option",
}
SECRET = "hunter2"


@pytest.fixture(scope="module")
def ended(workbench, tmp_path_factory):
    wheels = tmp_path_factory.mktemp("wheels")
    write_wheel(wheels, "tiny", {"tiny.py": ""})
    write_wheel(wheels, "wants", {"wants.py": ""}, requires=["numpy<2"])
    return run_and_remove(
        workbench,
        *("python", "/index.py", "/wheels"),
        timeout_seconds=MAX_SECONDS,
        volumes=[f"{INDEX}:/index.py:ro", f"{wheels}:/wheels:ro"],
        network_mode="none",
        environment={"MAX_RESTARTS": "0"},
    )


@pytest.fixture(scope="module")
def said(ended):
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_every_case_has_an_end_that_is_known(said):
    codes = {name: code for name, (code, _) in said.items()}
    assert codes == dict.fromkeys(PASSING, 75) | dict.fromkeys(LASTING, 78) | {"installed": 0}


@pytest.mark.parametrize(("name", "words"), (PASSING | LASTING).items())
def test_the_message_has_the_cause(said, name, words):
    assert words in said[name][1]


def test_only_pips_settings_are_no_fault_of_the_requirements(said):
    others = {
        name for name, (code, text) in said.items() if code and "requirements.txt" not in text
    }
    assert others == {"setting", "switch"}


def test_no_password_is_in_a_message_or_left_on_the_disk(ended):
    assert "installed tiny 1.0 from 127.0.0.1 (" in ended.err
    assert SECRET not in ended.err + ended.out
