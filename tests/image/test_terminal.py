"""A container with a terminal: Ctrl-C reaches the command once, and shells are not restarted."""

import pytest

from harness.ended import wait_for_end
from harness.waiting import wait_for_text

CTRL_C = b"\x03"
COUNTS = (
    "import signal, time\n"
    "got = []\n"
    "signal.signal(signal.SIGINT, lambda *_: got.append('SIGINT'))\n"
    "print('ready', flush=True)\n"
    "while not got: time.sleep(0.01)\n"
    "time.sleep(0.5)\n"
    "print('got', *got)\n"
)


@pytest.fixture
def with_terminal(run_container):
    """Start a command with a terminal; return its container and a function that types into it."""

    def start(*command):
        container = run_container(*command, tty=True, stdin_open=True)
        socket = container.attach_socket(params={"stdin": 1, "stream": 1})
        return container, socket._sock.sendall  # noqa: SLF001 -- the SDK has no other way to type

    return start


def test_ctrl_c_reaches_the_command_once(with_terminal):
    container, type_in = with_terminal("python", "-c", COUNTS)
    wait_for_text(container, "ready")
    type_in(CTRL_C)
    ended = wait_for_end(container)
    assert "got SIGINT\r\n" in ended.out
    assert ended.code == 0


def test_a_shell_can_be_typed_into_and_ends_with_its_code(with_terminal):
    container, type_in = with_terminal("bash", "--norc")
    type_in(b"echo $((6 * 7)) && tty\n")
    wait_for_text(container, "42\r\n/dev/pts/0")
    type_in(b"exit 3\n")
    ended = wait_for_end(container)
    assert ended.code == 3
    assert "restart" not in ended.out


def test_a_run_has_one_line_that_is_drawn_anew(run_container):
    drawn = wait_for_end(run_container("--epochs", "3", "--run-dir", "/tmp/a", tty=True))
    assert drawn.code == 0, drawn.out
    assert "\x1b[2Kepoch " in drawn.out
    assert "━" in drawn.out
    assert "INFO worker-0 epoch 3/3  step " in drawn.out


def test_a_plain_terminal_has_lines_alone(run_container):
    plain = {"tty": True, "environment": {"NO_COLOR": "1"}}
    ended = wait_for_end(run_container("--epochs", "1", "--run-dir", "/tmp/a", **plain))
    assert ended.code == 0, ended.out
    assert "\x1b" not in ended.out
