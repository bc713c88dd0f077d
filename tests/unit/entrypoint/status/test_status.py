"""The output of `status` in each state of the entrypoint."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entrypoint.network.link import Link, read_link
from entrypoint.proc import this_boot
from entrypoint.status import places as places_module
from entrypoint.status import show
from entrypoint.status.board import Board
from entrypoint.status.places import folders, places
from entrypoint.status.reading import COMMAND_FILE, NETWORK_FILE, Status, read_all
from harness.ports import free_ports
from harness.waiting import wait_until

pytestmark = pytest.mark.slow

SLEEP = "import time; time.sleep(300)"


@pytest.fixture
def begin(tmp_path: Path, entrypoint: tuple[str, ...]) -> Iterator[Callable[..., subprocess.Popen]]:
    """Return a function that starts the entrypoint, with its status in the test's folder."""
    started: list[subprocess.Popen] = []

    def start(*command: str, **environ: str) -> subprocess.Popen:
        own = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *entrypoint, *command],
            env=own | environ,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def reach(tmp_path: Path) -> Callable[..., Status]:
    """Return a function that waits for a state and texts, and returns the worker's status."""

    def wait(state: str, said: str = "", line: str = "") -> Status:
        def is_there() -> bool:
            return any(
                one.state == state and said in one.detail and line in one.last_line
                for one in read_all([tmp_path])
            )

        wait_until(is_there, 20, f"{state} {said}{line}", lambda: str(read_all([tmp_path])))
        return read_all([tmp_path])[0]

    return wait


@pytest.fixture
def shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs `status`, and returns its code and both outputs."""
    monkeypatch.setattr(show, "places", lambda _: (tmp_path,))

    def ask(*arguments: str) -> tuple[int, str, str]:
        code = show.show_status(arguments, {})
        return code, *capfd.readouterr()

    return ask


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board.put_up("worker-1", [tmp_path])


def test_a_wait_while_the_command_runs_is_shown_and_counted(board: Board, reach: Callable) -> None:
    board.note_start("running", 0)
    with board.waiting("for 1 of 2 workers", within_seconds=60) as note:
        assert reach("waiting").detail == "for 1 of 2 workers"
        note("worker-1 is missing")
        assert reach("waiting", "worker-1 is missing").late_seconds < -50
    status = reach("running")
    assert (status.gate_waits, status.late_seconds) == (1, 0)


def test_a_wait_that_may_last_as_long_again_is_nothing_that_has_happened(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with board.waiting("for 1 of 2 workers", within_seconds=60) as note:
        note("to be taken in")
        (events,) = tmp_path.glob("*/events.jsonl")
        noted = events.read_text()
        monkeypatch.setattr(time, "monotonic", lambda: time.perf_counter() + 1e6)
        note("to be taken in")
        (status,) = read_all([tmp_path])
        assert status.late_seconds > 1e5
        note("to be taken in", anew=True)
        (status,) = read_all([tmp_path])
        assert -70 < status.late_seconds < -50
        assert events.read_text().count("\n") == noted.count("\n") + 1


def test_a_stop_is_shown_though_another_process_goes_on_waiting(
    board: Board, reach: Callable
) -> None:
    board.note_start("running", 0)
    beside = copy.copy(board)  # as after a fork
    with beside.waiting("for 1 of 2 workers", within_seconds=60) as note:
        board.note("stopping")
        note("worker-1 is missing")
        assert reach("stopping")
    assert reach("stopping")


def test_what_another_process_has_counted_is_not_forgotten(board: Board, reach: Callable) -> None:
    board.note_start("running", 0)
    with copy.copy(board).waiting("for 1 of 2 workers", within_seconds=60):
        pass
    board.note("restarting")
    assert reach("restarting").gate_waits == 1


def test_a_command_runs_with_its_last_line(
    begin: Callable, reach: Callable, tmp_path: Path
) -> None:
    begin(sys.executable, "-uc", f"print('one'); print('two'); {SLEEP}")
    reach("running")
    wait_until(lambda: read_all([tmp_path])[0].last_line == "two", 10, "two", lambda: "")
    status = read_all([tmp_path])[0]
    assert (status.worker, status.restarts, status.step, status.trouble) == (
        "worker-0",
        0,
        None,
        "",
    )


def test_a_command_may_say_its_step_itself(begin: Callable, reach: Callable) -> None:
    begin("sh", "-c", """echo '{"step": 7}' > $STATUS_FILE; exec sleep 300""")
    status = reach("training")
    assert (status.step, status.trouble) == (7, "")


@pytest.mark.parametrize("who", ["entrypoint", "command"])
def test_a_stopped_process_is_trouble_until_it_continues(
    begin: Callable, reach: Callable, tmp_path: Path, who: str
) -> None:
    program = """import os, struct, time; from pathlib import Path
no_call = struct.pack("dq", float("inf"), os.getpid())
Path(os.environ["DEADLINE_FILE"]).write_bytes(no_call)
print(os.getpid()); time.sleep(300)"""
    started = begin(sys.executable, "-uc", program)
    reach("running")
    wait_until(lambda: read_all([tmp_path])[0].last_line, 10, "the process id", lambda: "")
    (status,) = read_all([tmp_path])
    assert status.trouble == ""
    pid = started.pid if who == "entrypoint" else int(status.last_line)

    def trouble() -> str:
        return read_all([tmp_path])[0].trouble

    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: f"its {who} is stopped" in trouble(), 10, "stopped", trouble)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not trouble(), 10, "continued", trouble)


@pytest.mark.parametrize(("seconds", "said"), [(10, ""), (40, "without a step")])
def test_a_call_that_takes_too_long_is_trouble_after_half_a_minute(
    begin: Callable, reach: Callable, seconds: int, said: str
) -> None:
    program = f"""import os, struct, time; from pathlib import Path
late = struct.pack("dq", time.monotonic() - {seconds}, os.getpid())
Path(os.environ["DEADLINE_FILE"]).write_bytes(late)
Path(os.environ["STATUS_FILE"]).write_text('{{"state": "training"}}')
print("told"); time.sleep(300)"""
    begin(sys.executable, "-uc", program)
    trouble = reach("training", line="told").trouble
    assert said in trouble
    assert bool(trouble) == bool(said)


def test_a_worker_at_the_gate_names_who_is_missing(begin: Callable, reach: Callable) -> None:
    first, second = free_ports(2)
    hosts = f"127.0.0.1:{first},127.0.0.1:{second}"
    begin("true", WORKER_HOSTS=hosts, WORKER_INDEX="0", RENDEZVOUS_TIMEOUT="60")
    waiting = "waiting for 1 of 2 workers"
    status = reach("waiting", f"worker-1 at 127.0.0.1:{second}: refused", line=waiting)
    assert status.trouble == ""
    assert -60 < status.late_seconds < 0


def test_a_crash_is_a_restart_with_its_reason_and_is_counted(
    begin: Callable, reach: Callable
) -> None:
    begin("sh", "-c", "test -e x && exec sleep 300; touch x; exit 9")
    status = reach("restarting", "the command ended with exit code 9")
    assert (status.restarts, status.trouble) == (1, "")
    assert reach("running", line="restart 1 of 3 in").restarts == 1


def test_a_command_that_does_not_end_at_once_is_stopping(
    begin: Callable, reach: Callable, tmp_path: Path
) -> None:
    deaf = f"import signal; signal.signal(15, signal.SIG_IGN); open('deaf', 'w'); {SLEEP}"
    process = begin(sys.executable, "-c", deaf, STOP_GRACE_SECONDS="1")
    wait_until((tmp_path / "deaf").exists, 10, "it is deaf", str)
    process.send_signal(signal.SIGTERM)
    assert reach("stopping", "the command has 1 s to end").trouble == ""
    assert reach("stopped", "exit code 143").trouble == "it was stopped: exit code 143"


@pytest.mark.parametrize(
    ("code", "state", "trouble"), [(0, "done", ""), (5, "failed", "it failed: exit code 5")]
)
def test_the_end_is_kept(
    begin: Callable, reach: Callable, code: int, state: str, trouble: str
) -> None:
    process = begin("sh", "-c", f"exit {code}", MAX_RESTARTS="0")
    assert process.wait(20) == code
    assert reach(state).trouble == trouble


def test_an_entrypoint_that_was_killed_is_told_and_makes_room_for_the_next(
    begin: Callable, reach: Callable, shown: Callable, tmp_path: Path
) -> None:
    process = begin("sleep", "300")
    reach("running")
    assert shown()[0] == 0
    process.kill()
    process.wait()
    code, out, _ = shown()
    assert (code, "unhealthy  its entrypoint was killed\n" in out) == (1, True), out
    begin("true").wait(20)
    assert len(list(folders([tmp_path]))) == 1
    assert shown()[0] == 0


def test_as_a_table_and_as_an_object(board: Board, shown: Callable) -> None:
    board.note_start("starting", 2)
    command = Path(board.variables["STATUS_FILE"])
    command.write_text('{"state": "training", "detail": "epoch 3/5", "step": 70, "epoch": 3}')
    board.line("a line\x1b[2J")
    code, out, err = shown()
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "worker     worker-1",
        "state      training, for 0 s",
        "at         epoch 3/5",
        "step       70",
        "restarts   2",
        r"last line  a line\x1b[2J",
    ]
    code, out, _ = shown("--json")
    members = json.loads(out)
    assert (code, members["healthy"], members["state"]) == (0, True, "training")
    assert (members["step"], members["epoch"], members["epochs"]) == (70, 3, None)


def test_what_a_command_tells_of_its_speed_and_checkpoints_is_shown(
    board: Board, shown: Callable
) -> None:
    board.note_wait(2.5)
    board.note_wait(1.0)
    board.note_start("starting", 1)
    told = {
        "state": "training",
        "examples_per_second": 1234.5,
        "checkpoint_step": 40,
        "checkpoint_at": time.monotonic() - 30,
        "slow": "throttled",
        "network": "the network is the limit",
        "sync_every": 16,
    }
    Path(board.variables["STATUS_FILE"]).write_text(json.dumps(told))
    members = json.loads(shown("--json")[1])
    assert members["sync_every"] == 16
    assert (members["examples_per_second"], members["checkpoint_step"]) == (1234.5, 40)
    assert 30 <= members["checkpoint_seconds"] < 40
    assert (members["slow"], members["slow_reason"]) == (True, "throttled")
    assert members["network_reason"] == "the network is the limit"
    assert (members["gate_waits"], members["gate_wait_seconds"]) == (2, 3.5)
    assert re.search(r"^slow +throttled$", shown()[1], re.MULTILINE)


def test_the_measured_network_is_shown(board: Board, shown: Callable) -> None:
    board.note_start("running", 0)
    assert json.loads(shown("--json")[1])["network_links"] == []
    links = [
        Link("worker-0", "worker-1", 0.0003, 9.1e9),
        Link("worker-1", "worker-0", 0.0003, 0.94e9),
    ]
    board.note_network(links)
    board.note_start("running", 1)
    assert [read_link(one) for one in json.loads(shown("--json")[1])["network_links"]] == links
    assert re.search(r"^links +0.3 ms, .*worker-1 -> worker-0", shown()[1], re.MULTILINE)


@pytest.mark.parametrize(
    "text", ["", "{", "7", "[7]", "[{}]", '[{"from": 1}]', '{"from": "a"}', "[" * 9999]
)
def test_nonsense_in_place_of_the_network_is_no_trouble(
    board: Board, shown: Callable, text: str
) -> None:
    board.note_start("running", 0)
    (board.folder / NETWORK_FILE).write_text(text)
    assert json.loads(shown("--json")[1])["network_links"] == []


def test_what_lasts_much_longer_than_it_may_is_not_healthy(board: Board, shown: Callable) -> None:
    board.note("waiting", "for worker-0", within_seconds=-20)
    assert shown()[0] == 0
    board.note("restarting", within_seconds=-40)
    code, out, _ = shown()
    assert (code, "restarting for 40 s longer than it may take" in out) == (1, True), out


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"step": "x", "since": [], "state": 3, "until": "y"}',
        "\xff" * 99,
        '{"since": -1e300}',
        '{"since": NaN, "examples_per_second": Infinity, "checkpoint_at": -1e300}',
        f'{{"since": 1{"0" * 400}}}',
    ],
    ids=lambda text: text[:30],
)
def test_nonsense_of_a_command_is_no_trouble(board: Board, shown: Callable, text: str) -> None:
    board.note_start("running", 0)
    Path(board.variables["STATUS_FILE"]).write_text(text)
    assert shown()[0] == 0
    code, out, _ = shown("--json")
    assert code == 0
    json.loads(out, parse_constant=pytest.fail)  # called for NaN and Infinity, which are not JSON


def test_a_restart_forgets_what_the_command_said(board: Board) -> None:
    board.note_start("running", 0)
    Path(board.variables["STATUS_FILE"]).write_text('{"step": 5}')
    board.note_start("running", 1)
    assert not Path(board.variables["STATUS_FILE"]).exists()


def test_nobody_there_is_said_in_words(shown: Callable) -> None:
    code, out, err = shown()
    assert (code, out) == (1, "")
    assert "no worker runs" in err
    assert "docker exec CONTAINER status" in err


def test_in_a_pod_nobody_there_is_said_in_its_words(
    shown: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "is_in_pod", lambda: True)
    assert "kubectl exec POD -- status" in shown()[2]


def test_other_arguments_are_refused(shown: Callable) -> None:
    code, _, err = shown("--yaml")
    assert code == 1
    assert 'received "--yaml"; accepted: --json, or nothing' in err


def test_the_word_status_starts_nothing(run: Callable, tmp_path: Path) -> None:
    ended = run("status", "--what")
    assert (ended.code, ended.stdout) == (1, "")
    assert list(folders([tmp_path])) == []


def test_a_place_that_cannot_be_written_leads_to_the_next(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert places({"TMPDIR": "/own"})[0] == Path("/own")
    board = Board.put_up("worker-0", [missing, tmp_path])
    assert Path(board.variables["STATUS_FILE"]).parent.parent == tmp_path
    nowhere = Board.put_up("worker-0", [missing])
    nowhere.note("running")
    nowhere.line("a line")
    assert nowhere.variables == {}


def test_anybody_may_write_beside_but_take_nothing_away(board: Board) -> None:
    folder = Path(board.variables["STATUS_FILE"])
    assert folder.name == COMMAND_FILE
    assert folder.parent.stat().st_mode & 0o7777 == 0o1777


def test_a_container_beside_keeps_its_status_as_long_as_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with --network host: two containers with one host name, and a folder for both.
    first = Board.put_up("worker-0", [tmp_path])
    first.note("running")
    monkeypatch.setattr(places_module, "this_container", lambda: f"{this_boot()}/1")
    second = Board.put_up("worker-1", [tmp_path])
    second.note("running")
    assert first.folder.exists()
    assert [one.worker for one in read_all([tmp_path])] == ["worker-1"]
    os.close(first.lock)
    Board.put_up("worker-2", [tmp_path])
    assert not first.folder.exists()
    assert second.folder.exists()


def test_a_status_of_another_machine_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Board.put_up("worker-0", [tmp_path])
    other.note("running")
    os.close(other.lock)
    monkeypatch.setattr(places_module, "this_container", lambda: "another-boot/1")
    monkeypatch.setattr(places_module, "this_boot", lambda: "another-boot")
    Board.put_up("worker-1", [tmp_path])
    assert other.folder.exists()
