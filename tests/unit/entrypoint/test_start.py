"""The entrypoint as a process: the command, its environment, and the end of a bad start."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PRINT_ENVIRONMENT = (sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))")


def test_runs_the_command_with_tf_config_and_says_who_it_is(run: Callable) -> None:
    ended = run(
        *PRINT_ENVIRONMENT,
        WORKER_HOSTS="10.1.10.58,10.1.10.250",
        WORKER_INDEX="1",
        CLUSTER_TRAINER_VERSION="0.1.0",
    )
    assert ended.code == 0
    assert json.loads(json.loads(ended.stdout)["TF_CONFIG"]) == {
        "cluster": {"worker": ["10.1.10.58:2222", "10.1.10.250:2222"]},
        "task": {"type": "worker", "index": 1},
    }
    assert ended.stderr[len("10:28:53") :] == (
        " DEBUG worker-1 cluster-trainer 0.1.0: worker-1 of 2 "
        "(chief is worker-0 at 10.1.10.58:2222), TF_CONFIG from WORKER_HOSTS\n"
    )


# A shell would clear the mask of signals.
SELF_TEST = f"""#!{sys.executable}
import json, os, signal, sys
names = ("WORKER_HOSTS", "CLUSTER_TOKEN", "TF_CONFIG")
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
print(json.dumps([sys.argv[1:], [os.environ.get(name) for name in names], len(blocked)]))
"""


def test_a_self_test_meets_the_others_by_itself(
    entrypoint: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "python").write_text(SELF_TEST)
    (tmp_path / "python").chmod(0o755)
    given = {"WORKER_HOSTS": "a,b", "WORKER_INDEX": "0", "CLUSTER_TOKEN": "0123456789abcdef"}
    ended = subprocess.run(
        [*entrypoint, "selftest", "--json"],
        env={"PATH": str(tmp_path), **given},
        capture_output=True,
        check=True,
    )
    command = ["-P", "-m", "trainer", "selftest", "--json"]
    assert json.loads(ended.stdout) == [command, ["a,b", "0123456789abcdef", None], 0]
    assert ended.stderr == b""


@pytest.mark.parametrize("variables", [{}, {"WORKER_HOSTS": "a,b", "WORKER_INDEX": "1"}])
def test_a_set_of_strings_has_the_same_order_at_each_start(
    run: Callable, variables: dict[str, str]
) -> None:
    """A table of labels is often made of a set."""
    command = (sys.executable, "-c", "print(list(set('abcdefghijklmnop')))")
    printed = {run(*command, **variables).stdout for _ in range(3)}
    assert len(printed) == 1
    assert len(printed.pop()) > len("[]\n")


def test_one_worker_has_no_tf_config(run: Callable) -> None:
    ended = run(*PRINT_ENVIRONMENT)
    assert "TF_CONFIG" not in json.loads(ended.stdout)
    assert ended.stderr.endswith(" INFO worker-0 cluster-trainer: one worker, no TF_CONFIG\n")


def test_cluster_source_none_takes_tf_config_away(run: Callable) -> None:
    ended = run(*PRINT_ENVIRONMENT, TF_CONFIG="{", CLUSTER_SOURCE="none")
    assert "TF_CONFIG" not in json.loads(ended.stdout)


def test_the_chief_is_told_so(run: Callable) -> None:
    document = '{"cluster":{"master":["a:1"],"worker":["b:1"]},"task":{"type":"master","index":0}}'
    ended = run("true", TF_CONFIG=document)
    assert "cluster-trainer: chief-0 of 2 (the chief), TF_CONFIG as given\n" in ended.stderr


def test_an_evaluator_is_beside_the_cluster(run: Callable) -> None:
    document = '{"cluster":{"worker":["a:1"]},"task":{"type":"evaluator","index":0}}'
    assert "evaluator-0 beside a cluster of 1" in run("true", TF_CONFIG=document).stderr


def test_dotenv_and_file_forms_reach_the_command(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "workspace" / ".env").write_text("FROM_FILE=1\nREAL=file\n")
    (tmp_path / "model").write_text("mnist_cnn\n")
    ended = run(*PRINT_ENVIRONMENT, REAL="real", TRAINER_MODEL_FILE="../model", OTHER_FILE="x")
    found = json.loads(ended.stdout)
    assert (found["FROM_FILE"], found["REAL"], found["TRAINER_MODEL"]) == ("1", "real", "mnist_cnn")
    assert "TRAINER_MODEL_FILE" not in found
    assert found["OTHER_FILE"] == "x"


def test_without_a_command_the_trainer_runs(run: Callable, fake_python: Callable) -> None:
    fake_python('echo "$@"')
    assert run().stdout == "-P -m trainer\n"


def test_flags_are_for_the_trainer(run: Callable, fake_python: Callable) -> None:
    fake_python('echo "$@"')
    assert run("--epochs", "3").stdout == "-P -m trainer --epochs 3\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [("true", 0), ("exit 42", 42), ("kill -KILL $$", 137), ("kill -TERM $$", 143)],
)
def test_ends_with_the_commands_code(run: Callable, script: str, code: int) -> None:
    assert run("sh", "-c", script).code == code


def test_the_command_reads_stdin_and_gets_its_arguments_unchanged(run: Callable) -> None:
    ended = run("sh", "-c", 'cat; printf "%s|" "$@"', "sh", "a b", "", "*", stdin="hello ")
    assert ended.stdout == "hello a b||*|"


def test_the_command_ignores_no_signals_but_those_that_were_ignored_before(run: Callable) -> None:
    # `subprocess` restores the signals that Python ignores. Others were ignored before the tests.
    look = ["grep", "SigIgn", "/proc/self/status"]
    before = subprocess.run(look, capture_output=True, text=True, check=True).stdout
    assert run(*look).stdout == before


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("no-such-command", 127, "no-such-command: no such command."),
        ("./missing/task.py", 127, "./missing/task.py: no such command."),
        ("", 127, "the command is empty"),
        ("/tmp", 126, "cannot run /tmp: Permission denied."),
        ("./plain", 126, "cannot run ./plain: Permission denied."),
        ("./bare", 126, "cannot run ./bare: Exec format error."),
        ("./orphan", 127, "the interpreter of its first line is missing"),
    ],
)
def test_a_command_that_cannot_run_ends_as_in_a_shell(
    run: Callable,
    tmp_path: Path,
    command: str,
    code: int,
    says: str,
) -> None:
    for name, text, mode in [
        ("plain", "echo", 0o644),
        ("bare", "no shebang", 0o755),
        ("orphan", "#!/no/such/interpreter", 0o755),
    ]:
        path = tmp_path / "workspace" / name
        path.write_text(text)
        path.chmod(mode)
    ended = run(command)
    assert ended.code == code
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


BAD = [
    {"WORKER_HOSTS": "a,b", "WORKER_INDEX": "2"},
    {"WORKER_HOSTS": "a,b", "WORKER_INDEX": "-1"},
    {"WORKER_HOSTS": "a,b", "WORKER_INDEX": "x"},
    {"WORKER_HOSTS": "", "WORKER_INDEX": "0"},
    {"WORKER_HOSTS": "a,a", "WORKER_INDEX": "0"},
    {"WORKER_HOSTS": "a:0", "WORKER_INDEX": "0"},
    {"WORKER_HOSTS": "a:70000", "WORKER_INDEX": "0"},
    {"WORKER_HOSTS": ":1", "WORKER_INDEX": "0"},
    {"WORKER_HOSTS": "192.0.2.1,no-such-host.invalid"},
    {"WORKER_INDEX": "0"},
    {"TF_CONFIG": "{"},
    {"TF_CONFIG": '{"cluster":{"worker":["a:1"]}}'},
    {"TF_CONFIG": '{"cluster":{"boss":["a:1"]},"task":{"type":"boss","index":0}}'},
    {"TF_CONFIG": '{"cluster":{"chief":["a:1","b:1"]},"task":{"type":"chief","index":0}}'},
    {"WORKER_HOSTS": "a", "WORKER_HOSTS_FILE": "b", "WORKER_INDEX": "0"},
    {"WORKER_HOSTS_FILE": "/nowhere"},
    {"WORKER_HOSTS": os.fsdecode(b"\xff\xfe"), "WORKER_INDEX": os.fsdecode(b"\xff")},
    {
        "TF_CONFIG": '{"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0}}',
        "WORKER_HOSTS": "b:1",
    },
]


@pytest.mark.parametrize("environ", BAD, ids=" ".join)
def test_a_bad_start_ends_within_a_second_with_one_message(
    run: Callable,
    environ: dict[str, str],
) -> None:
    ended = run("true", **environ)
    assert ended.code == 78
    assert ended.stdout == ""
    assert ended.stderr.startswith("cluster-trainer: ")
    assert ended.stderr.endswith(
        "\n\nNothing was started. docs/reference/variables.md explains every variable.\n",
    )
    assert any(name in ended.stderr for name in environ)
    assert "Traceback" not in ended.stderr
    # On a busy machine a good start takes long, too.
    assert ended.seconds < 1 or ended.seconds < 4 * run("true").seconds
    assert run("explain", "true", **environ).stderr == ended.stderr


TRAINER_REFUSES = """
test "$1 $2 $3 $4" = "-P -m trainer check" || exit 9
problem='{"name": "TRAINER_MODEL (--model)", "received": "%s", "accepted": "a model"}'
printf "{\\"problems\\": [$problem], \\"settings\\": {}}" "$5"
exit 78
"""


def test_the_trainers_problems_are_in_the_same_message(
    run: Callable,
    fake_python: Callable,
) -> None:
    fake_python(TRAINER_REFUSES)
    ended = run("--foo", WORKER_INDEX="0")
    assert ended.code == 78
    assert ended.stderr.startswith("cluster-trainer: 2 problems in the configuration\n\n  WORKER_I")
    assert '  TRAINER_MODEL (--model): received "--foo"; accepted: a model.\n' in ended.stderr


def test_the_trainer_is_not_asked_about_another_command(
    run: Callable,
    fake_python: Callable,
) -> None:
    fake_python(TRAINER_REFUSES)
    assert "TRAINER_MODEL" not in run("true", WORKER_INDEX="0").stderr


@pytest.mark.parametrize(
    "script",
    ["exit 3", "echo nonsense", "echo '[7]'", "echo '{}{}'", "kill -9 $$", "echo '{}'; exit 78"],
)
def test_a_trainer_that_cannot_be_asked_is_said_plainly(
    run: Callable,
    fake_python: Callable,
    script: str,
) -> None:
    fake_python(script)
    ended = run(WORKER_INDEX="0")
    assert ended.code == 78
    assert "1 problem in the configuration" in ended.stderr
    assert "The trainer's own settings were not checked: the check" in ended.stderr


TWO_WORKERS = {"WORKER_HOSTS": "127.0.0.1,127.0.0.2", "WORKER_INDEX": "0"}
TRAINER_IS_DONE = """
test "$4" = check || { echo trains; exit; }
echo '{"problems": [], "settings": {}, "done": "this run is done (1200 steps)"}'
"""


@pytest.fixture
def meets_nobody() -> dict[str, str]:
    """A worker whose peer never comes, on a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return TWO_WORKERS | {"WORKER_PORT": str(port), "RENDEZVOUS_TIMEOUT": "1"}


def test_a_run_that_is_done_does_not_wait_for_its_peers(
    run: Callable,
    fake_python: Callable,
    meets_nobody: dict[str, str],
) -> None:
    fake_python(TRAINER_IS_DONE)
    ended = run(**meets_nobody)
    assert (ended.code, ended.stdout) == (0, "")
    assert ended.stderr.endswith(" INFO worker-0 this run is done (1200 steps)\n")


def test_another_command_waits_for_its_peers_whatever_the_trainer_has_done(
    run: Callable,
    fake_python: Callable,
    meets_nobody: dict[str, str],
) -> None:
    fake_python(TRAINER_IS_DONE)
    assert run("true", **meets_nobody).code == 75


@pytest.mark.parametrize("done", ["", ', "done": null'])
def test_a_run_that_is_not_done_waits_for_its_peers(
    run: Callable,
    fake_python: Callable,
    meets_nobody: dict[str, str],
    done: str,
) -> None:
    fake_python(f"""echo '{{"problems": [], "settings": {{}}{done}}}'""")
    assert run(**meets_nobody).code == 75


# The check ends badly the first `times` times, and then well. Any other command is training.
CHECK_FAILS = """
test "$4" = check || {{ echo trains; exit; }}
echo run >> checks
test $(grep -c run checks) -gt {times} || {{ {ends}; }}
echo '{{"problems": [], "settings": {{"TRAINER_EPOCHS": "3"}}}}'
"""


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("echo no room >&2; exit 3", "ended with exit code 3: no room"),
        ("kill -9 $$", "was killed by SIGKILL"),
        ("echo nonsense; exit 0", "printed no valid result"),
        ("exec sleep 300", "took more than"),
    ],
)
def test_settings_that_nobody_knows_are_not_taken_for_none(
    run: Callable,
    fake_python: Callable,
    meets_nobody: dict[str, str],
    ends: str,
    said: str,
) -> None:
    fake_python(CHECK_FAILS.format(times=99, ends=ends))
    ended = run(**meets_nobody | {"RENDEZVOUS_TIMEOUT": "2"})
    assert (ended.code, ended.stdout) == (75, "")
    assert said in ended.stderr.splitlines()[-1]
    assert "waiting for" not in ended.stderr


def test_a_check_that_fails_once_is_retried(
    run: Callable, fake_python: Callable, meets_nobody: dict[str, str]
) -> None:
    fake_python(CHECK_FAILS.format(times=1, ends="exit 3"))
    ended = run(**meets_nobody | {"RENDEZVOUS_TIMEOUT": "2"})
    assert "exit code 3; trying again in 1 s" in ended.stderr
    # The gate gave up, because no peer came.
    assert "gave up after 2 s: waiting for 1 of 2 workers" in ended.stderr


def test_a_slow_check_has_the_time_that_the_workers_have(
    run: Callable, fake_python: Callable, meets_nobody: dict[str, str]
) -> None:
    fake_python(CHECK_FAILS.format(times=99, ends="sleep 1"))
    assert "gave up after 2 s" in run(**meets_nobody | {"RENDEZVOUS_TIMEOUT": "2"}).stderr


def test_refuses_a_value_too_long_for_a_program(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("é" * 65_529, encoding="utf-8")
    ended = run("true", TRAINER_MODEL_FILE="../long")
    assert ended.code == 78
    assert 'received "131058 bytes"; accepted: 131057 bytes at most' in ended.stderr


@pytest.mark.parametrize("stderr", ["/dev/full", "&-", "&0"], ids=["full", "closed", "no reader"])
@pytest.mark.parametrize(("variable", "code"), [("", 0), ("WORKER_INDEX=x", 78), ("", 3)])
def test_a_log_that_nobody_takes_changes_no_exit_code(
    entrypoint: tuple[str, ...], tmp_path: Path, stderr: str, variable: str, code: int
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    start = f"exec env {variable} \"$@\" sh -c 'exit {code}' 2>{stderr}"
    ended = subprocess.run(
        ["sh", "-c", start, "sh", *entrypoint],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "MAX_RESTARTS": "0"},
        stdout=subprocess.PIPE,
        stdin=writing,  # for &0
        cwd=tmp_path,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stdout) == (code, b"")
