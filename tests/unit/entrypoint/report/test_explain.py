"""`explain` shows the configuration, as text and as JSON, and runs nothing."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.settings.options import VARIABLES

DEFAULTS = {
    variable.name: {"value": variable.default, "source": "default"}
    for variable in VARIABLES.values()
} | {"PYTHONHASHSEED": {"value": "0", "source": "default"}}


@pytest.fixture(autouse=True)
def trainer_without_problems(fake_python: Callable) -> None:
    """Install a trainer that finds no problem."""
    fake_python("""echo '{"problems": [], "settings": {}}'""")


def test_json_of_a_worker(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "workspace" / ".env").write_text("WORKER_INDEX=1\n")
    (tmp_path / "hosts").write_text("a:1,b:1\n")
    ended = run(
        "explain",
        "--json",
        "--epochs",
        "3",
        WORKER_HOSTS_FILE="../hosts",
        TRAINER_MODEL="m",
        TRAINER_API_KEY="hunter2",
    )
    assert ended.code == 0
    text = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
    document = json.loads(ended.stdout)
    values = document.pop("values")
    assert document == {
        "tf_config": {
            "cluster": {"worker": ["a:1", "b:1"]},
            "task": {"type": "worker", "index": 1},
        },
        "task": {"type": "worker", "index": 1},
        "cluster": {"worker": ["a:1", "b:1"]},
        "command": ["python", "-P", "-m", "trainer", "--epochs", "3"],
    }
    assert values == DEFAULTS | {
        "TF_CONFIG": {"value": text, "source": "derived: WORKER_HOSTS"},
        "WORKER_HOSTS": {"value": "a:1,b:1", "source": "file ../hosts"},
        "WORKER_INDEX": {"value": "1", "source": ".env"},
        "RENDEZVOUS_TIMEOUT": {"value": "0", "source": "environment"},
        "MAX_RESTARTS": {"value": "0", "source": "environment"},
        "TRAINER_API_KEY": {"value": "***", "source": "environment"},
        "TRAINER_MODEL": {"value": "m", "source": "environment"},
    }


def test_json_shows_a_schedulers_variables_that_are_set(run: Callable) -> None:
    scheduler = {
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
        "SKYPILOT_NODE_RANK": "1",
        "JOB_COMPLETION_INDEX": "1",
    }
    values = json.loads(run("explain", "--json", "true", **scheduler).stdout)["values"]
    assert values["TF_CONFIG"]["source"] == "derived: SKYPILOT_NODE_IPS"
    shown = {name: value for name, value in values.items() if name not in DEFAULTS}
    assert shown == {
        name: {"value": text, "source": "environment"} for name, text in scheduler.items()
    }


SLURM = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NODELIST": "n[1-2]",
}
SAGEMAKER = {"SM_HOSTS": '["a","b"]', "SM_CURRENT_HOST": "a"}


@pytest.mark.parametrize(
    ("scheduler", "port", "source"),
    [(SLURM, "8888", "SLURM_STEP_NODELIST"), (SAGEMAKER, "8890", "SM_HOSTS")],
)
def test_json_shows_a_schedulers_own_port(
    run: Callable, scheduler: dict[str, str], port: str, source: str
) -> None:
    values = json.loads(run("explain", "--json", "true", **scheduler).stdout)["values"]
    assert values["WORKER_PORT"] == {"value": port, "source": f"derived: {source}"}
    given = run("explain", "--json", "true", **scheduler, WORKER_PORT="7000").stdout
    assert json.loads(given)["values"]["WORKER_PORT"] == {"value": "7000", "source": "environment"}


def test_json_shows_what_a_scheduler_says_about_the_trainer(run: Callable) -> None:
    document = json.loads(run("explain", "--json", "true", SKYPILOT_TASK_ID="sky-1").stdout)
    assert document["values"]["TRAINER_RUN_DIR"] == {
        "value": "/runs/sky-1",
        "source": "SKYPILOT_TASK_ID",
    }


@pytest.mark.parametrize("given", ["7", "random"])
def test_json_shows_an_order_of_sets_that_the_user_chose(run: Callable, given: str) -> None:
    document = json.loads(run("explain", "--json", "true", PYTHONHASHSEED=given).stdout)
    assert document["values"]["PYTHONHASHSEED"] == {"value": given, "source": "environment"}


def test_json_of_one_worker(run: Callable) -> None:
    document = json.loads(run("explain", "--json", "bash").stdout)
    assert document["tf_config"] is None
    assert document["task"] == {"type": "worker", "index": 0}
    assert document["cluster"] == {}
    assert document["command"] == ["bash"]


def test_json_says_how_the_index_was_found(run: Callable) -> None:
    document = json.loads(run("explain", "--json", WORKER_HOSTS="127.0.0.1:1").stdout)
    assert document["values"]["WORKER_INDEX"] == {
        "value": "0",
        "source": "derived: 127.0.0.1 is this machine's address",
    }


def test_json_keeps_a_tf_config_that_is_not_used(run: Callable) -> None:
    document = json.loads(run("explain", "--json", TF_CONFIG="{", CLUSTER_SOURCE="none").stdout)
    assert document["tf_config"] is None
    assert document["values"]["TF_CONFIG"] == {"value": "{", "source": "environment"}


def test_text_of_a_worker(run: Callable) -> None:
    ended = run("explain", "sh", "-c", "a b", WORKER_HOSTS="a:1,b:12", WORKER_INDEX="1")
    assert ended.code == 0
    assert ended.stderr == ""
    assert ended.stdout.startswith(
        "Cluster\n"
        "  worker-0  a:1   chief\n"
        "  worker-1  b:12  this one\n"
        "\n"
        "Command\n"
        "  sh -c 'a b'\n"
        "\n"
        "TF_CONFIG of the command\n"
        '  {"cluster": {"worker": ["a:1", "b:12"]}, "task": {"type": "worker", "index": 1}}\n'
        "\n"
        "Values\n"
    )
    rows = ended.stdout.partition("Values\n")[2].splitlines()
    cells = [re.split(" {2,}", row.strip()) for row in rows]
    assert [name for name, *_ in cells] == [*VARIABLES, "PYTHONHASHSEED"]
    assert cells[1:4] == [
        ["WORKER_HOSTS", "a:1,b:12", "(environment)"],
        ["WORKER_INDEX", "1", "(environment)"],
        ["WORKER_PORT", "2222", "(default)"],
    ]
    shortened = '{"cluster": {"worker": ["a:1", "b:12"]}, "task": {"type": "…'
    assert cells[0] == ["TF_CONFIG", shortened, "(derived: WORKER_HOSTS)"]
    assert len({row.rindex("(") for row in rows[:5]}) == 1
    assert cells[-2:] == [["ENV_FILE", "(not set)"], ["PYTHONHASHSEED", "0", "(default)"]]


def test_text_of_one_worker(run: Callable) -> None:
    assert "Cluster\n  worker-0  alone, no cluster\n" in run("explain").stdout


def test_text_of_an_evaluator(run: Callable) -> None:
    document = '{"cluster":{"worker":["a:1"]},"task":{"type":"evaluator","index":0}}'
    ended = run("explain", "bash", TF_CONFIG=document)
    assert "worker-0     a:1  chief\n  evaluator-0       this one" in ended.stdout


@pytest.mark.parametrize("form", [["explain"], ["explain", "--json"]])
def test_the_trainers_problems_end_it_with_78(
    run: Callable,
    fake_python: Callable,
    form: list[str],
) -> None:
    problem = '{"name": "A", "received": "b", "accepted": "c"}'
    said = f'{{"problems": [{problem}], "settings": {{}}}}'
    fake_python(f"echo '{said}'; exit 78")
    ended = run(*form)
    assert (ended.code, ended.stdout) == (78, "")
    assert '  A: received "b"; accepted: c.\n' in ended.stderr


def test_a_trainer_that_cannot_be_asked_is_said_plainly(
    run: Callable,
    fake_python: Callable,
) -> None:
    fake_python("echo 'No module named trainer' >&2; exit 1")
    ended = run("explain", "--json")
    assert ended.code == 0
    assert json.loads(ended.stdout)["tf_config"] is None
    assert ended.stderr == (
        "cluster-trainer: The trainer's own settings were not checked: the check ended with exit "
        "code 1: No module named trainer.\n"
    )


def test_a_run_that_is_done_is_said_with_the_explanation(
    run: Callable,
    fake_python: Callable,
) -> None:
    fake_python("""echo '{"problems": [], "settings": {}, "done": "this run is done"}'""")
    ended = run("explain", "--json")
    assert ended.code == 0
    assert json.loads(ended.stdout)["command"]
    assert ended.stderr == "cluster-trainer: this run is done\n"


def test_the_command_does_not_run(run: Callable, tmp_path: Path) -> None:
    run("explain", "touch", "ran")
    assert not (tmp_path / "workspace" / "ran").exists()


@pytest.mark.parametrize("stdout", ["/dev/full", "&-"])
@pytest.mark.parametrize(
    ("words", "what"), [(["explain", "true"], "explanation"), (["export", "compose"], "file")]
)
def test_a_text_that_cannot_be_written_is_said_plainly(
    run: Callable, entrypoint: tuple[str, ...], words: list[str], what: str, stdout: str
) -> None:
    """A shell starts a second entrypoint, with a stdout that is full or closed."""
    ended = run("sh", "-c", f'exec "$@" >{stdout}', "sh", *entrypoint, *words)
    assert ended.code == 1
    assert f"cannot write the {what}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_shows_what_keeps_a_proxy_from_the_workers(run: Callable) -> None:
    given = {"WORKER_HOSTS": "a:1,b:1", "WORKER_INDEX": "0", "http_proxy": "http://me:hunter2@p"}
    ended = run("explain", "--json", **given)
    shown = json.loads(ended.stdout)["values"]["no_proxy"]
    assert shown["value"] == "a,b"
    assert "http_proxy" in shown["source"]
    assert "hunter2" not in ended.stdout + ended.stderr


def test_a_port_that_a_running_worker_uses_is_explained(run: Callable) -> None:
    with socket.create_server(("", 0)) as running:
        port = str(running.getsockname()[1])
        assert run("true", METRICS_PORT=port).code == 78
        ended = run("explain", "--json", "true", METRICS_PORT=port)
    assert (ended.code, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["values"]["METRICS_PORT"]["value"] == port
