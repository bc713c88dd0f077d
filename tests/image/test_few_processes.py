"""A limit of processes (docker run --pids-limit) that the command uses up."""

# The command opens the worker's port, so that the watch over the peers begins, and then takes
# every thread that there is, so that the watch gets none for looking up a name.
GREEDY = """
import socket, threading, time
threading.stack_size(65536)
until = threading.Event()
try:
    while True:
        threading.Thread(target=until.wait, daemon=True).start()
except RuntimeError:
    print("none left", flush=True)
port = socket.create_server(("", 2222))
time.sleep(5)
print("trained", flush=True)
"""


def test_a_watch_that_gets_no_thread_does_not_end_the_command(run_to_end):
    ended = run_to_end(
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
    assert (ended.code, ended.out) == (0, "none left\ntrained\n"), ended
    assert "WARNING worker-0 the watch over the peers failed" in ended.err
    assert "Traceback" not in ended.err
