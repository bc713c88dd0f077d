"""METRICS_PORT: the metrics that a container serves to Prometheus."""

import json
import re
from pathlib import Path

from harness.waiting import logs_of, wait_for_text, wait_until

TOLD = {"state": "training", "step": 120, "epoch": 3, "examples_per_second": 4500.5}
SAVED_SECONDS = 30
SOON_SECONDS = 60
# After a restart, it has a checkpoint and is a straggler.
COMMAND = """
import json, os, sys, time
from pathlib import Path

told, saved_seconds = json.loads(sys.argv[1]), float(sys.argv[2])
restarts = int(os.environ["RESTART_COUNT"])
if restarts:
    told |= {"checkpoint_step": 100, "checkpoint_at": time.monotonic() - saved_seconds}
    told["slow"] = "its disk is slow"
Path(os.environ["STATUS_FILE"]).write_text(json.dumps(told))
print(f"start {restarts} is process {os.getpid()}.", flush=True)
time.sleep(300)
"""
SCRAPE = (
    "import sys, urllib.request as web\n"
    "print(web.urlopen(f'http://{sys.argv[1]}:9400/metrics', timeout=10).read().decode())"
)
HAS_IPV6 = Path("/proc/net/if_inet6").exists()
WITH_IPV6 = {"net.ipv6.conf.all.disable_ipv6": "0"} if HAS_IPV6 else {}


def test_prometheus_is_told_what_status_says(run_container):
    options = {"read_only": True, "environment": {"METRICS_PORT": "9400"}, "sysctls": WITH_IPV6}
    given = [json.dumps(TOLD), str(SAVED_SECONDS)]
    container = run_container("python", "-c", COMMAND, *given, **options)
    wait_for_text(container, "start 0 is process")
    wait_until(lambda: scrape(container)[0] == 0, 20, "an answer", lambda: scrape(container)[1])
    lines = scrape(container)[1].splitlines()
    for line in (
        'cluster_trainer_step{worker="worker-0"} 120.0',
        'cluster_trainer_epoch{worker="worker-0"} 3.0',
        'cluster_trainer_examples_per_second{worker="worker-0"} 4500.5',
        'cluster_trainer_healthy{worker="worker-0"} 1.0',
        'cluster_trainer_restarts_total{worker="worker-0"} 0.0',
        'cluster_trainer_gate_waits_total{worker="worker-0"} 0.0',
        'cluster_trainer_slow{worker="worker-0"} 0.0',
        'cluster_trainer_state{state="training",worker="worker-0"} 1.0',
    ):
        assert line in lines, lines
    assert not [line for line in lines if line.startswith("cluster_trainer_checkpoint")]
    assert not HAS_IPV6 or scrape(container, "[::1]")[0] == 0

    kill_command(container)
    wait_for_text(container, "start 1 is process")
    restarted = 'cluster_trainer_restarts_total{worker="worker-0"} 1.0'
    # The server answers with the same status for a second.
    wait_until(lambda: restarted in scrape(container)[1], 20, "the restart", lambda: "")
    lines = scrape(container)[1].splitlines()
    for line in (
        'cluster_trainer_checkpoint_step{worker="worker-0"} 100.0',
        'cluster_trainer_slow{worker="worker-0"} 1.0',
    ):
        assert line in lines, lines
    age = 'cluster_trainer_checkpoint_age_seconds{worker="worker-0"} '
    (seconds,) = [float(line.removeprefix(age)) for line in lines if line.startswith(age)]
    assert SAVED_SECONDS <= seconds < SAVED_SECONDS + SOON_SECONDS


def kill_command(container):
    """Kill the command with SIGKILL, as the kernel does when memory runs out."""
    (process,) = re.findall(r"start 0 is process (\d+)\.", logs_of(container))
    code, output = container.exec_run(["bash", "-c", f"kill -KILL {process}"])
    assert code == 0, output


def scrape(container, host="127.0.0.1"):
    code, output = container.exec_run(["python", "-c", SCRAPE, host])
    return code, output.decode()


def test_a_workers_port_is_refused(run_to_end):
    own = {"WORKER_HOSTS": "h0:2222,h1:2222", "WORKER_INDEX": "0", "METRICS_PORT": "2222"}
    ended = run_to_end("true", environment=own)
    assert (ended.code, ended.out) == (78, "")
    assert 'METRICS_PORT: received "2222"' in ended.err
