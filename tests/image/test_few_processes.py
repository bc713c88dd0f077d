"""A limit of processes (docker run --pids-limit) that the command or the entrypoint uses up."""

import pytest

from harness.ended import wait_for_end
from harness.waiting import wait_for_text

# The command takes all threads, so that the watch over the peers gets none for looking up a name.
# It answers at the worker's port like TensorFlow's server, so that the watch begins. It ends on
# SIGUSR1.
GREEDY = """
import signal, socket, threading
GO = {signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, GO)
threading.stack_size(65536)
until = threading.Event()
try:
    while True:
        threading.Thread(target=until.wait, daemon=True).start()
except RuntimeError:
    print("none left", flush=True)
SETTINGS = bytes.fromhex("000000040000000000")
ANSWER = bytes.fromhex("000005000100000001" "0000000000")
port = socket.create_server(("", 2222))
port.settimeout(0.1)
while not signal.sigtimedwait(GO, 0):
    try:
        port.accept()[0].sendall(SETTINGS + ANSWER)
    except OSError:
        pass
print("trained", flush=True)
"""
WATCH_FAILED = "WARNING worker-0 the watch over the peers failed"


def test_a_watch_that_gets_no_thread_does_not_end_the_command(run_container):
    container = run_container(
        *("python", "-c", GREEDY),
        hostname="h0",
        pids_limit=40,
        environment={
            "WORKER_HOSTS": "h0:2222,a-name-to-look-up:2222",
            "WORKER_INDEX": "0",
            "RENDEZVOUS_TIMEOUT": "0",
            "MAX_RESTARTS": "0",
        },
    )
    wait_for_text(container, WATCH_FAILED)
    container.kill("SIGUSR1")
    ended = wait_for_end(container)
    assert (ended.code, ended.out) == (0, "none left\ntrained\n"), ended
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("limit", [2, 3], ids=["no command", "no thread for its output"])
def test_a_limit_that_the_entrypoint_itself_reaches_is_told(run_to_end, limit):
    settings = {"FAILURE_FILE": "/dev/stdout", "MAX_RESTARTS": "0"}  # tini is the first process
    ended = run_to_end("sleep", "300", pids_limit=limit, environment=settings)
    assert (ended.code, "Traceback" in ended.err) == (71, False), ended
    assert ended.out.startswith("worker-0: the command cannot be started")
