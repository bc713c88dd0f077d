"""A limit of processes (docker run --pids-limit) that the command uses up."""

from harness.ended import wait_for_end
from harness.waiting import wait_for_text

# The command opens the worker's port, so that the watch over the peers begins, and then takes
# every thread that there is, so that the watch gets none for looking up a name. It ends when it is
# told to.
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
port = socket.create_server(("", 2222))
signal.sigwait(GO)
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
