"""A user's secrets are in no message, whichever way they are given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.errors import render
from entrypoint.settings.environ import Environ, read_environ
from entrypoint.sources import sagemaker, with_contract_settings
from entrypoint.start_messages.hiding import shown_command, shown_value
from harness.contracts import refusal

pytestmark = pytest.mark.slow

SECRET = "hunter2"
HOST = {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"}
WRONG = {
    f'{{"api_key": "{SECRET}",}}': "line 1, column 23",
    f'{{\n"api_key": "{SECRET}': "line 2, column 12",
    f'"{SECRET}"': "not an object",
    f'{{"key": "a", "key": "{SECRET}"}}': '"key" twice',
    f'{{"key": "{SECRET}", "other": NaN}}': "NaN",
    f'{{"key": "{SECRET}", "other": 1{"0" * 400}}}': "too large",
    f'{{"key": "{SECRET}", "other": {"[" * 40}{"]" * 40}}}': "levels deep",
}
"""Documents that are not JSON objects, and the reason that is given for each."""
VARIABLES = ("SM_HPS", "SM_HOSTS", "TF_CONFIG", "CLUSTER_SPEC")
FILES = ("resourceconfig.json", "inputdataconfig.json", "hyperparameters.json")


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Environ]:
    """Return a function that makes the environment of a start with one of SageMaker's files."""

    def start(name: str, text: str) -> Environ:
        folder = tmp_path / "opt/ml/input/config"
        folder.mkdir(parents=True)
        (folder / "resourceconfig.json").write_text('{"current_host": "a", "hosts": ["a"]}')
        (folder / name).write_text(text)
        return with_contract_settings(read_environ({}, tmp_path, root=tmp_path))

    return start


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize(("text", "reason"), WRONG.items())
def test_a_document_in_a_variable_is_not_repeated(
    run: Callable, tmp_path: Path, name: str, text: str, reason: str
) -> None:
    failure = tmp_path / "failure"
    ended = run("true", **HOST | {name: text, "FAILURE_FILE": str(failure)})
    written = failure.read_text()
    assert (ended.code, SECRET in ended.stderr, SECRET in written) == (78, False, False)
    if name != "SM_HOSTS" or not text.startswith('"'):  # a JSON string is no document there
        assert f"{name}: " in written
        assert f"({len(text)} characters, not shown)" in written
        assert reason in written


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("text", "reason"), WRONG.items())
def test_a_document_in_a_file_is_not_repeated(
    job: Callable, name: str, text: str, reason: str
) -> None:
    environ = job(name, text)
    problems = list(environ.problems)
    if name == "resourceconfig.json":
        problems += refusal(sagemaker.find, environ)
    message = render(problems)
    assert SECRET not in message
    assert f"{name}: " in message
    assert f"({len(text)} characters, not shown)" in message
    assert reason in message


def test_a_wrong_hyperparameter_leaves_the_file_that_is_to_say_so(job: Callable) -> None:
    environ = job("hyperparameters.json", "{")
    assert environ.problems
    assert environ.get("FAILURE_FILE") == f"{environ.root}/opt/ml/output/failure"


def test_a_long_key_is_shortened(job: Callable) -> None:
    text = json.dumps({"a" * 5000: 1})
    (problem,) = job("hyperparameters.json", text.replace("}", ", ") + text[1:]).problems
    assert len(problem.advice) < 300


def test_a_value_that_no_variable_can_hold_is_hidden_if_its_name_says_so(job: Callable) -> None:
    (problem,) = job("hyperparameters.json", f'{{"api_key": "{SECRET}\\u0000"}}').problems
    message = render([problem])
    assert ("api_key" in message, SECRET in message) == (True, False)


def test_the_explanation_hides_what_its_name_says_is_secret(run: Callable) -> None:
    job = {"worker_pool_specs": [{"container_spec": {"env": [{"name": "A", "value": SECRET}]}}]}
    cluster = {
        "cluster": {"workerpool0": ["a:1"]},
        "task": {"type": "workerpool0", "index": 0},
        "job": json.dumps(job),
    }
    hyperparameters = {"api_key": SECRET, "db-passwd": SECRET, "credentials": SECRET}
    environ = {"CLUSTER_SPEC": json.dumps(cluster), "CLUSTER_SOURCE": "vertex"}
    environ |= HOST | {"SM_HPS": json.dumps(hyperparameters), "CLUSTER_TOKEN": SECRET * 5}
    command = ("python", "task.py", "--api-key", SECRET, f"--password={SECRET}", "--epochs", "3")
    for explain in (("explain",), ("explain", "--json")):
        ended = run(*explain, *command, **environ)
        assert ended.code == 0
        assert SECRET not in ended.stdout
        assert "workerpool0" in ended.stdout
        assert "TRAINER_API_KEY" in ended.stdout
        assert "--password=***" in ended.stdout
        assert "--epochs" in ended.stdout


@pytest.mark.parametrize(
    "script",
    [
        f"cd /workspace && API_KEY={SECRET} python task.py",
        f"python task.py --api-key {SECRET}",
        f"python task.py --epochs=3 --api-key='{SECRET} and more'",
        f"curl 'http://host/?key={SECRET}'",
    ],
)
def test_a_secret_within_a_word_of_the_command_is_hidden(script: str) -> None:
    *before, shown = shown_command(["sh", "-c", script])
    assert before == ["sh", "-c"]
    assert SECRET not in shown
    assert script.startswith(shown.removesuffix("***"))


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--config", '{"api_key": "S", "a": 1}'], ["--config", '{"api_key": ***']),
        (["--config", '{\\"api_key\\": \\"S\\"}'], ["--config", '{\\"api_key\\": ***']),
        (['["--api-key", "S"]'], ['["--api-key", ***']),
        (["api_key: S"], ["api_key: ***"]),
        (["api_key:S"], ["api_key:***"]),
        (["api_key:", "S"], ["api_key:", "***"]),
        (["+wandb.api_key=S"], ["+wandb.api_key=***"]),
        (["-c", "login(key = 'S')"], ["-c", "login(key = ***"]),
        (["-c", "os.environ['API_KEY'] = 'S'"], ["-c", "os.environ['API_KEY'] = ***"]),
        (["-e", "key <- 'S'"], ["-e", "key <- ***"]),
        (["-c", "train '--api-key' S"], ["-c", "train '--api-key' ***"]),
        (["-H", "X-Api-Key: S"], ["-H", "X-Api-Key: ***"]),
        (["-H", "Authorization: Bearer S"], ["-H", "Authorization: ***"]),
        (["--api-key", "-S"], ["--api-key", "***"]),
        (["--use-key", "--epochs", "3"], ["--use-key", "--epochs", "3"]),
        (["https://ana:S@host/x"], ["https://ana:***@host/x"]),
        (["--db=postgresql://ana:S@host/x"], ["--db=postgresql://ana:***@host/x"]),
        (["x://ana:S@host --api-key S"], ["x://ana:***@host --api-key ***"]),
        (["https://host:80/x"], ["https://host:80/x"]),
        (["lambda: 1", "a=b", "x: 1", "--lr", "1"], ["lambda: 1", "a=b", "x: 1", "--lr", "1"]),
    ],
)
def test_a_secret_of_the_command_is_hidden_in_all_its_forms(
    words: list[str], shown: list[str]
) -> None:
    assert shown_command(words) == shown


def test_a_password_in_an_address_is_hidden_whatever_its_variable() -> None:
    assert shown_value("TRAINER_DATABASE", f"x://ana:{SECRET}@host") == "x://ana:***@host"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("part", ["a", "a.", " ", "--a ", '"', "key", "://a:", "-", "a:"])
def test_a_long_word_takes_no_long_time(part: str) -> None:
    shown_command([part * 100_000])


@pytest.mark.parametrize(
    "variables",
    [
        {"PREEMPTION_NOTICE": "aws", "PREEMPTION_URL": f"http://ana:{SECRET}@10.0.0.1"},
        {"WORKER_HOSTS": f"http://ana:{SECRET}@m1:22"},
        {"TF_CONFIG": json.dumps({"cluster": {"worker": [f"grpc://a:{SECRET}@m1:1"]}})},
        {"ENV_FILE": f"https://ana:{SECRET}@host/.env"},
    ],
)
def test_a_password_in_an_address_that_is_refused_is_not_repeated(
    run: Callable, tmp_path: Path, variables: dict[str, str]
) -> None:
    failure = tmp_path / "failure"
    ended = run("true", **variables, FAILURE_FILE=str(failure))
    assert ended.code == 78
    for text in (ended.stderr, failure.read_text()):
        assert SECRET not in text
        assert ":***@" in text
