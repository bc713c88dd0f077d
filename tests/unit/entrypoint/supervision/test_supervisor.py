"""The entrypoint as a running process: signals, restarts, leftover processes, and its log."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entrypoint.log import Log
from entrypoint.supervision.end_marks import digest
from entrypoint.supervision.failure_file import remove_failure

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
PYTHON = (sys.executable, "-c")
READY = "print('ready', flush=True)"
DEAF = f"import signal, time; signal.signal(15, signal.SIG_IGN); {READY}; time.sleep(300)"
HEARS = (
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); "
    f"{READY}; print('got', signal.sigwait(range(1, 32)).name, flush=True)"
)
# Counts its runs in a file, and runs the case of each.
COUNTED = "echo run >> runs; case $(grep -c run runs) in {cases} esac"


class Started:
    """A running entrypoint, and its output."""

    def __init__(self, command: tuple[str, ...], folder: Path, environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            # A shell that starts pytest in the background makes it ignore SIGINT.
            ["env", "--default-signal=INT", *command],
            env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder)}
            | environ,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, line: str) -> None:
        """Read the standard output up to a line."""
        assert self.process.stdout
        assert any(line in said for said in self.process.stdout), self.process.stderr.read()

    def end(self) -> tuple[int, str, str]:
        """Return the code and both outputs."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture
def begin(tmp_path: Path, entrypoint: tuple[str, ...]) -> Iterator[Callable[..., Started]]:
    """Return a function that starts the entrypoint. All are stopped when the test ends."""
    started: list[Started] = []

    def start(*command: str, **environ: str) -> Started:
        started.append(Started((*entrypoint, *command), tmp_path, environ))
        return started[-1]

    yield start
    for one in started:
        one.process.terminate()
        one.process.communicate(timeout=30)


def test_a_crash_is_tried_again_until_it_works_and_the_command_can_tell(begin: Callable) -> None:
    script = COUNTED.format(cases="1) exit 1;; 2) kill -SEGV $$;; *) echo works;;")
    code, out, err = begin("sh", "-c", f'echo "$RESTART_COUNT"; {script}').end()
    assert (code, out) == (0, "0\n1\n2\nworks\n")
    assert "the command ended with exit code 1; restart 1 of 3 in " in err
    assert "the command was killed by SIGSEGV; restart 2 of 3 in " in err


def test_gives_up_after_max_restarts_and_says_why(begin: Callable, tmp_path: Path) -> None:
    failure = tmp_path / "failure"
    script = COUNTED.format(cases="*) echo disk is full >&2; exit 9;;")
    code, _, err = begin("sh", "-c", script, MAX_RESTARTS="2", FAILURE_FILE=str(failure)).end()
    assert code == 9
    assert (tmp_path / "runs").read_text().count("run") == 3
    reason = "gave up after 2 restarts without progress: the command ended with exit code 9"
    assert err.endswith(f" ERROR worker-0 {reason}\n")
    assert failure.read_text() == f"worker-0: {reason}\ndisk is full\n"


def test_progress_begins_the_count_anew(begin: Callable, tmp_path: Path) -> None:
    cases = "1|2) touch $PROGRESS_FILE; exit 75;; 3) exit 75;; *) exit 5;;"
    code, _, err = begin("sh", "-c", COUNTED.format(cases=cases), MAX_RESTARTS="1").end()
    assert (code, (tmp_path / "runs").read_text().count("run")) == (75, 3)
    assert err.count("restart 1 of 1") == 2
    assert "gave up after 1 restart without progress" in err


TWO_WORKERS = {"WORKER_HOSTS": "127.0.0.1,127.0.0.2", "WORKER_INDEX": "0"}
THREE_WORKERS = TWO_WORKERS | {"WORKER_HOSTS": "127.0.0.1,127.0.0.2,127.0.0.3"}


def test_after_a_lost_peer_it_says_that_the_peers_meet_again(begin: Callable) -> None:
    """Losses are counted for each peer: 3 for each of two."""
    environ = THREE_WORKERS | {"RENDEZVOUS_TIMEOUT": "0"}
    _, _, err = begin("sh", "-c", COUNTED.format(cases="1) exit 75;;"), **environ).end()
    said = "exit code 75; a peer was lost, meeting the peers again: restart 1 of 6 in "
    assert f"the command ended with {said}" in err


@pytest.mark.parametrize(("code", "environ"), [(75, {}), (1, TWO_WORKERS)])
def test_no_peer_is_blamed_without_reason(begin: Callable, code: int, environ: dict) -> None:
    script = COUNTED.format(cases=f"1) exit {code};;")
    _, _, err = begin("sh", "-c", script, RENDEZVOUS_TIMEOUT="0", **environ).end()
    assert f"the command ended with exit code {code}; restart 1 of 3 in " in err


def test_the_place_of_the_progress_file_can_be_chosen(begin: Callable, tmp_path: Path) -> None:
    own = str(tmp_path / "own")
    assert begin("sh", "-c", "echo $PROGRESS_FILE", PROGRESS_FILE=own).end()[1] == f"{own}\n"


@pytest.mark.parametrize("code", [78, 126, 127, 130, 143])
def test_what_a_restart_cannot_mend_is_not_tried_again(begin: Callable, code: int) -> None:
    ended, out, err = begin("sh", "-c", f"echo once; exit {code}").end()
    assert (ended, out) == (code, "once\n")
    assert "restart" not in err


def test_another_code_can_stand_for_a_lost_peer(begin: Callable) -> None:
    code, _, err = begin("sh", "-c", "exit 75", MAX_RESTARTS="0", PEER_LOST_EXIT_CODE="203").end()
    assert code == 203
    assert "(exit code 203)" in err


def test_a_stop_between_two_runs_is_heard_at_once(begin: Callable, tmp_path: Path) -> None:
    started = begin("sh", "-c", "echo ready; echo run >> runs; exit 1", MAX_RESTARTS="99")
    for line in started.process.stderr:
        if "restart 3 of 99" in line:  # the third pause takes 2 s or more
            break
    before = time.monotonic()
    started.process.send_signal(signal.SIGUSR1)
    assert any("SIGUSR1 is ignored" in line for line in started.process.stderr)
    started.process.terminate()
    code, _, err = started.end()
    assert (code, time.monotonic() - before < 2) == (143, True)
    assert "stopped by SIGTERM (before a restart)" in err
    assert (tmp_path / "runs").read_text().count("run") == 3


def test_a_stop_is_heard_while_the_trainer_is_asked_for_its_settings(
    begin: Callable, fake_python: Callable, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "asked")
    # The check ignores SIGTERM, and must not outlive the entrypoint.
    fake_python("trap '' TERM; echo $$ > asked; sleep 300; echo trains")
    path = f"{tmp_path}:{os.environ['PATH']}"
    started = begin(PATH=path, **TWO_WORKERS)
    checking = int((tmp_path / "asked").read_text())
    started.process.terminate()
    code, out, err = started.end()
    assert (code, out) == (143, "")
    assert "stopped by SIGTERM" in err
    assert not alive(checking)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130)],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_command_that_hears_its_stop_ends_at_once(
    begin: Callable, number: int, code: int
) -> None:
    started = begin("sh", "-c", "echo ready; exec sleep 300")
    started.wait_for("ready")
    before = time.monotonic()
    started.process.send_signal(number)
    assert started.end()[0] == code
    assert time.monotonic() - before < 2


def test_a_deaf_command_is_killed_when_its_grace_is_over(begin: Callable) -> None:
    started = begin(*PYTHON, DEAF, STOP_GRACE_SECONDS="0.5")
    started.wait_for("ready")
    before = time.monotonic()
    started.process.terminate()
    code, _, err = started.end()
    assert code == 143
    assert 0.5 <= time.monotonic() - before < 2.5
    assert "stopped by SIGTERM (it was killed by SIGKILL" in err


def test_a_command_that_ends_well_when_asked_to_has_done_its_work(begin: Callable) -> None:
    started = begin("bash", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    started.wait_for("ready")
    started.process.terminate()
    assert started.end()[0] == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_hands_the_signal_on(begin: Callable, name: str) -> None:
    started = begin(*PYTHON, HEARS)
    started.wait_for("ready")
    started.process.send_signal(getattr(signal, name))
    code, out, _ = started.end()
    assert (code, out) == (0, f"got {name}\n")


@pytest.mark.parametrize("name", ["SIGHUP", "SIGQUIT", "SIGUSR1"])
def test_a_signal_that_is_no_stop_ends_no_worker_that_waits_at_the_gate(
    begin: Callable, name: str
) -> None:
    started = begin("true", **TWO_WORKERS)
    assert any("worker-1" in line for line in started.process.stderr)
    started.process.send_signal(getattr(signal, name))
    assert any(f"{name} is ignored" in line for line in started.process.stderr)
    started.process.terminate()
    assert started.end()[0] == 143


def test_hands_the_signal_on_to_what_the_command_has_started(begin: Callable) -> None:
    script = 'trap : USR1; "$@"; echo after'
    started = begin("sh", "-c", script, "sh", *PYTHON, HEARS)
    started.wait_for("ready")
    started.process.send_signal(signal.SIGUSR1)
    assert started.end()[:2] == (0, "got SIGUSR1\nafter\n")


def alive(pid: int) -> bool:
    """Tell whether a process runs. A zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# The first process leaves a child behind that has its own process group and ignores SIGTERM.
LEAVES_ONE = """
import os, signal, time
signal.signal(15, signal.SIG_IGN)
left = os.fork()
if left == 0:
    time.sleep(300)
os.setpgid(left, left)
print(left, flush=True)
"""


@pytest.mark.parametrize("last", ["os._exit(0)", "os._exit(1)", "time.sleep(300)"])
def test_nothing_that_the_command_started_outlives_it(begin: Callable, last: str) -> None:
    started = begin(*PYTHON, f"{LEAVES_ONE}{last}", MAX_RESTARTS="0", STOP_GRACE_SECONDS="0.3")
    left_behind = int(started.process.stdout.readline())
    if "sleep" in last:
        started.process.terminate()
    started.end()
    assert not alive(left_behind)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as port:
        return int(port.getsockname()[1])


# Each run leaves processes behind that have their own sessions and hold the port and the output.
LEAVES_A_SESSION = """
import os, signal, socket, time
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
port = socket.create_server(("127.0.0.1", {port}))
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # and a child, an orphan once its parent is killed
        os.setsid()
        os.write(told, b".")
        time.sleep(300)
    time.sleep(300)
os.read(ready, 1)
print("ran", flush=True)
os._exit(1)
"""


def test_what_left_the_commands_session_neither_keeps_its_port_nor_costs_time(
    begin: Callable,
) -> None:
    free = free_port()
    before = time.monotonic()
    started = begin(*PYTHON, LEAVES_A_SESSION.format(port=free), MAX_RESTARTS="1")
    code, out, err = started.end()
    assert (code, out) == (1, "ran\nran\n"), err
    assert time.monotonic() - before < 4
    with socket.create_server(("127.0.0.1", free)):
        pass


NOT_HEARD = ["SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGIO", "SIGWINCH", "SIGRTMIN"]


def test_no_signal_but_a_stop_ends_a_worker_at_the_gate_or_what_helps_it(begin: Callable) -> None:
    # `docker kill -s` sends a signal to one process, and Slurm's --signal to all.
    port = {"WORKER_PORT": str(free_port()), "RENDEZVOUS_TIMEOUT": "3"}
    started = begin("true", **TWO_WORKERS, **port)
    for line in started.process.stderr:
        if "waiting for" in line:
            break
    for name in NOT_HEARD:
        for pid in (*children(started.process.pid), started.process.pid):
            os.kill(pid, getattr(signal, name))
    code, _, err = started.end()
    assert (code, "gave up after 3 s" in err) == (75, True), err
    assert "SIGUSR1 is ignored" in err


# The signals come while the settings are read.
HEARS_EARLY = """
import os, signal, sys
sys.path[:0] = [{root!r}]
from entrypoint.settings import environ

read = environ.read_environ

def read_and_hear(*given):
    for name in {names}:
        os.kill(os.getpid(), getattr(signal, name))
    return read(*given)

environ.read_environ = read_and_hear
"""


def test_no_signal_but_a_stop_ends_a_worker_before_its_command_exists(
    tmp_path: Path, entrypoint: tuple[str, ...]
) -> None:
    *python, program = entrypoint
    early = HEARS_EARLY.format(root=str(ROOT), names=NOT_HEARD)
    code, out, err = Started((*python, f"{early}{program}", "echo", "ran"), tmp_path, {}).end()
    assert (code, out) == (0, "ran\n"), err
    assert "SIGUSR1 is ignored" in err


LEAVES_ITS_MARK = """
folder=$TRAINER_RUN_DIR/worker-$WORKER_INDEX
mkdir -p $folder
echo '[0, 1]' > $folder/ENDED.pending
echo $folder/ENDED.pending >> $END_MARKS
echo has run
"""


@pytest.mark.parametrize("index", ["0", pytest.param("1", marks=pytest.mark.long)])
def test_what_has_ended_with_all_and_is_started_again_alone_ends_with_0(
    begin: Callable, tmp_path: Path, index: str
) -> None:
    ports = [free_port(), free_port()]
    (tmp_path / "script.sh").write_text(LEAVES_ITS_MARK)
    environ = {
        "WORKER_HOSTS": ",".join(f"127.0.0.1:{port}" for port in ports),
        "TRAINER_RUN_DIR": str(tmp_path / "runs"),
    }
    both = [begin("sh", "script.sh", WORKER_INDEX=str(one), **environ) for one in range(2)]
    assert [one.end()[:2] for one in both] == [(0, "has run\n")] * 2
    alone = environ | {"WORKER_INDEX": index, "RENDEZVOUS_TIMEOUT": "1"}
    code, out, err = begin("sh", "script.sh", **alone).end()
    assert (code, out) == (0, ""), err
    assert "ENDED" in err
    assert begin("sh", "script.sh", "another", **alone).end()[0] == 75
    assert begin("sh", "script.sh", **alone, TRAINER_EPOCHS="9").end()[0] == 75
    (tmp_path / "script.sh").write_text(f"{LEAVES_ITS_MARK} # edited")
    assert begin("sh", "script.sh", **alone).end()[0] == 75


def test_a_command_that_was_edited_while_it_ran_is_another_one(
    begin: Callable, tmp_path: Path
) -> None:
    script, runs = tmp_path / "script.sh", tmp_path / "runs"
    script.write_text(LEAVES_ITS_MARK + "echo '# edited' >> script.sh\n")
    environ = {"TRAINER_RUN_DIR": str(runs), "WORKER_INDEX": "0", "WORKER_HOSTS": "127.0.0.1"}
    before = digest(("sh", "script.sh"), environ, 1, tmp_path)
    assert begin("sh", "script.sh", **environ).end()[0] == 0
    assert (runs / "worker-0/ENDED.by").read_text() == before


def children(parent: int) -> list[int]:
    """Return the children of a process."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


# A limit that allows a process and no thread.
NO_THREADS = """
import sys, threading
from pathlib import Path
sys.path.insert(0, {root!r})
from entrypoint.__main__ import main

def refuse(_):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
sys.exit(main(["sh", "-c", "sleep 300"], {environ!r}, Path({folder!r})))
"""


def test_a_limit_that_allows_no_thread_ends_the_worker_in_words(tmp_path: Path) -> None:
    failure = tmp_path / "failure"
    environ = {
        "TMPDIR": str(tmp_path),
        "FAILURE_FILE": str(failure),
        "MAX_RESTARTS": "0",
        "PATH": os.environ["PATH"],
    }
    program = NO_THREADS.format(root=str(ROOT), environ=environ, folder=str(tmp_path))
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, "Traceback" in done.stderr) == (71, False), done.stderr
    assert "limit of processes" in failure.read_text()
    (state,) = tmp_path.glob("*.status/state.json")
    assert json.loads(state.read_text())["state"] == "failed"


def test_a_metrics_server_that_dies_is_told_once(begin: Callable) -> None:
    # The server's module is missing here. The image has it.
    _, _, err = begin("sleep", "1.5", METRICS_PORT=str(free_port())).end()
    assert err.count("no more metrics: the process ended with exit code 1") == 1, err


# This program replaces the metrics server.
SERVER_HEARS = """
import os, signal, time
for name in {names}:
    os.kill(os.getpid(), getattr(signal, name))
print("ready", flush=True)
time.sleep(300)
"""
WITH_SERVER = """
import sys
sys.path[:0] = [{root!r}]
from entrypoint.supervision import metrics_process

metrics_process.SERVER = (sys.executable, "-c", {server!r})
"""


def test_no_signal_but_a_stop_ends_the_metrics_server(
    tmp_path: Path, entrypoint: tuple[str, ...]
) -> None:
    *python, program = entrypoint
    with_server = WITH_SERVER.format(root=str(ROOT), server=SERVER_HEARS.format(names=NOT_HEARD))
    environ = {"METRICS_PORT": str(free_port())}
    started = Started((*python, f"{with_server}{program}", "sleep", "300"), tmp_path, environ)
    started.wait_for("ready")
    started.process.terminate()
    code, _, err = started.end()
    assert (code, "no more metrics" in err) == (143, False), err


def test_json_makes_every_line_an_object(begin: Callable) -> None:
    script = (
        "echo plain; echo '10:00:00 WARNING worker-1 ours'; "
        "printf '1/3\\r2/3\\r3/3\\n'; echo '{\"loss\": 0.5}'; "
        "echo 'W0000 00:00:1.2 3 file.cc:1] theirs' >&2; printf unfinished >&2; exit 9"
    )
    code, out, err = begin("sh", "-c", script, LOG_FORMAT="json", MAX_RESTARTS="0").end()
    said = [json.loads(line) for line in out.splitlines()]
    wrong = [json.loads(line) for line in err.splitlines()]
    assert code == 9
    assert [(line["level"], line.get("message")) for line in said] == [
        ("INFO", "plain"),
        ("WARNING", "ours"),
        ("INFO", "3/3"),
        ("INFO", None),
    ]
    assert said[3]["loss"] == 0.5
    assert [(line["level"], line["message"]) for line in wrong[1:]] == [
        ("WARNING", "W0000 00:00:1.2 3 file.cc:1] theirs"),
        ("WARNING", "unfinished"),
        ("ERROR", "the command ended with exit code 9"),
    ]
    assert {line["worker"] for line in (*said, *wrong)} == {"worker-0"}
    assert all(line["time"].endswith("Z") for line in (*said, *wrong))


def test_a_refusal_is_one_object_in_json_and_reaches_the_failure_file(
    begin: Callable, tmp_path: Path
) -> None:
    failure = tmp_path / "failure"
    code, _, err = begin(
        "true", WORKER_INDEX="x", LOG_FORMAT="json", FAILURE_FILE=str(failure)
    ).end()
    message = json.loads(err)["message"]
    assert code == 78
    assert "WORKER_INDEX: received" in message
    assert "WORKER_INDEX: received" in failure.read_text()


def test_bytes_pass_unchanged(entrypoint: tuple[str, ...], tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "data").write_bytes(data)
    line = [*entrypoint, "sh", "-c", "cat data > /dev/stderr; cat data"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == data
    assert done.stderr.endswith(data)


def test_a_failure_file_that_cannot_be_written_is_said(begin: Callable) -> None:
    code, _, err = begin(
        "sh", "-c", "exit 7", MAX_RESTARTS="0", FAILURE_FILE="/no/such/folder/f"
    ).end()
    assert code == 7
    assert "WARNING worker-0 FAILURE_FILE /no/such/folder/f cannot be written" in err


def test_a_failure_file_that_is_a_fifo_keeps_no_worker(begin: Callable, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    started = begin("sh", "-c", "exit 3", MAX_RESTARTS="0", FAILURE_FILE=str(tmp_path / "fifo"))
    code, _, err = started.end()
    assert code == 3
    assert "FAILURE_FILE" in err


def test_a_relative_progress_file_is_in_the_folder_in_which_the_command_runs(
    begin: Callable, tmp_path: Path
) -> None:
    code, out, _ = begin("sh", "-c", "cd /; echo $PROGRESS_FILE", PROGRESS_FILE="own/p").end()
    assert (code, out) == (0, f"{tmp_path}/own/p\n")


def test_a_failure_that_is_over_leaves_no_file(begin: Callable, tmp_path: Path) -> None:
    failure = tmp_path / "failure"
    failure.write_text("worker-0: of an earlier start\n")
    script = COUNTED.format(cases="1) ls failure; echo of the script > failure; exit 1;;")
    code, out, err = begin("sh", "-c", script, FAILURE_FILE=str(failure)).end()
    assert (code, out) == (0, "")
    assert not failure.exists()
    assert "FAILURE_FILE" not in err


def test_a_failure_file_that_is_a_mount_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "termination-log"
    file.write_text("worker-0: of an earlier start\n")
    monkeypatch.setattr(Path, "unlink", lambda _: (_ for _ in ()).throw(OSError(16, "busy")))
    remove_failure(str(file), Log("worker-0"))
    assert file.read_text() == ""


def test_a_log_that_the_failure_file_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("lines\n")
    (tmp_path / "failure").symlink_to(tmp_path / "log")
    remove_failure(str(tmp_path / "failure"), Log("worker-0"))
    assert (tmp_path / "failure").read_text() == "lines\n"


def test_the_token_is_not_handed_to_the_command(begin: Callable) -> None:
    code, out, err = begin("sh", "-c", "env", CLUSTER_TOKEN="a-long-enough-secret").end()
    assert code == 0
    assert "a-long-enough-secret" not in out + err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("RENDEZVOUS_TIMEOUT", "-1"),
        ("STARTUP_TIMEOUT", "soon"),
        ("STOP_GRACE_SECONDS", "1e3"),
        ("MAX_RESTARTS", "many"),
        ("PEER_LOST_EXIT_CODE", "256"),
        ("PEER_LOST_EXIT_CODE", "78"),
        ("PEER_LOST_EXIT_CODE", "126"),
        ("PEER_LOST_EXIT_CODE", "127"),
        ("PEER_LOST_EXIT_CODE", "130"),
        ("PEER_LOST_EXIT_CODE", "143"),
        ("GPUS_PER_WORKER", "-1"),
        ("CLUSTER_TOKEN", "short"),
        ("LOG_FORMAT", "xml"),
    ],
)
def test_refuses_an_option_that_is_wrong(begin: Callable, name: str, text: str) -> None:
    code, _, err = begin("true", **{name: text}).end()
    assert code == 78
    assert f"{name}: received" in err


@pytest.mark.parametrize("code", [0, 1, 75, 78])
def test_a_mark_of_an_end_counts_after_0_alone(begin: Callable, tmp_path: Path, code: int) -> None:
    script = f"touch {tmp_path}/END.pending; echo {tmp_path}/END.pending > $END_MARKS; exit {code}"
    assert begin("sh", "-c", script, MAX_RESTARTS="0").end()[0] == code
    assert (tmp_path / "END").exists() == (code == 0)


def test_a_command_that_ends_with_0_because_it_was_stopped_gets_no_mark(
    begin: Callable, tmp_path: Path
) -> None:
    mark, failure = tmp_path / "END", tmp_path / "failure"
    script = (
        f"trap 'exit 0' TERM; touch {mark}.pending; echo {mark}.pending > $END_MARKS; "
        f"echo why > {failure}; echo ready; while :; do sleep 0.1; done"
    )
    started = begin("bash", "-c", script, FAILURE_FILE=str(failure))
    started.wait_for("ready")
    started.process.terminate()
    assert started.end()[0] == 0
    assert not mark.exists()
    assert not failure.exists()


def test_marks_of_an_earlier_run_of_the_command_are_forgotten(
    begin: Callable, tmp_path: Path
) -> None:
    first = f"touch {tmp_path}/END.pending; echo {tmp_path}/END.pending > $END_MARKS; exit 1"
    script = f'if [ "$RESTART_COUNT" = 0 ]; then {first}; fi'
    assert begin("sh", "-c", script).end()[0] == 0
    assert not (tmp_path / "END").exists()


def test_each_start_of_the_command_has_an_id_of_its_own(begin: Callable) -> None:
    script = 'echo "$START_ID"; sh -c "echo $START_ID"; [ "$RESTART_COUNT" != 0 ]'
    code, out, _ = begin("sh", "-c", script).end()
    first, its_child, second, _ = out.split()
    assert (code, first) == (0, its_child)
    assert second != first
