"""Training restarts by the supervisor inside, by `docker run --restart` outside, or by both."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from docker.models.containers import Container

from harness.ended import wait_for_end
from harness.peers import Peers, make_peers
from harness.waiting import logs_of, wait_for_text, wait_until

TRAINING = {"TRAINER_EPOCHS": "20", "TRAINER_CHECKPOINT_STEPS": "10", "TRAINER_THREADS": "1"}
NOT_INSIDE = {"MAX_RESTARTS": "0"}
BY_THE_ENGINE = {"Name": "on-failure"}
# So many epochs follow that the kill comes during training.
KILLED_AFTER = "epoch  1/20  step"
CODE_WHERE_THE_CONTAINER_ENDS = 137
RUN_SECONDS = 150
# Far less than a worker waits for its peer.
AGAIN_SECONDS = 30
PROCESSES = """
import os, signal
from pathlib import Path

def name(pid):
    return Path(f"/proc/{pid}/cmdline").read_text().split("\\0")[-2:][0]

def parent(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]

pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and parent(pid) != "0"]
"""
# The trainer is two processes. The child trains.
KILL_TRAINING = f"""{PROCESSES}
(pid,) = [pid for pid in pids if name(pid) == name(parent(pid)) == "trainer"]
os.kill(int(pid), signal.SIGKILL)
"""
KILL_ENTRYPOINT = f"""{PROCESSES}
(pid,) = [pid for pid in pids if parent(pid) == "1" and name(pid) == "entrypoint"]
os.kill(int(pid), signal.SIGKILL)
"""


@dataclass(frozen=True)
class Worker:
    """A container, and the folder on the host that it mounts at /runs."""

    container: Container
    runs: Path

    def kill(self, program: str) -> None:
        """Kill one of its processes. The container may end with it."""
        killed = self.container.exec_run(["python", "-c", program])
        assert killed.exit_code in (0, CODE_WHERE_THE_CONTAINER_ENDS), killed.output

    def result(self) -> dict:
        """Return its result.json."""
        (file,) = self.runs.glob("worker-*/result.json")
        return json.loads(file.read_text())

    def wait_until_done(self) -> None:
        """Wait until it has ended for good: the engine does not start it again."""
        wait_until(self._has_ended, RUN_SECONDS, "it is done", lambda: logs_of(self.container))
        assert self.container.attrs["State"]["ExitCode"] == 0, logs_of(self.container)

    def _has_ended(self) -> bool:
        self.container.reload()
        return self.container.status == "exited"

    @property
    def restarts_by_the_engine(self) -> int:
        """The number of times that the engine has started it again."""
        return self.container.attrs["RestartCount"]


def start(cluster: Peers, folder: Path, **settings: object) -> list[Worker]:
    """Start both workers, each with its own folder for results."""
    workers = []
    for index in range(cluster.count):
        runs = folder / f"runs-{index}"
        runs.mkdir()
        volumes = [f"{runs}:/runs"]
        container = cluster.start(index, volumes=volumes, **(TRAINING | settings))
        workers.append(Worker(container, runs))
    return workers


@pytest.fixture(scope="module")
def undisturbed(workbench, tmp_path_factory):
    """The weights' digest of an undisturbed run."""
    with make_peers(workbench, 2) as cluster:
        workers = start(cluster, tmp_path_factory.mktemp("undisturbed"))
        for worker in workers:
            worker.wait_until_done()
    (digest,) = {worker.result()["weights_sha256"] for worker in workers}
    return digest


@pytest.fixture
def recovered(peers, tmp_path, undisturbed):
    """Kill a process of a training worker; return both, which must end as if undisturbed."""

    def disturb(victim: int, program: str, **settings: object) -> list[Worker]:
        workers = start(peers(2), tmp_path, **settings)
        wait_for_text(workers[victim].container, KILLED_AFTER, RUN_SECONDS)
        workers[victim].kill(program)
        for worker in workers:
            worker.wait_until_done()
        results = [worker.result() for worker in workers]
        assert [result["status"] for result in results] == ["done", "done"]
        assert {result["weights_sha256"] for result in results} == {undisturbed}
        for worker, result in zip(workers, results, strict=True):
            assert result["resumed_from_step"] >= 10
            assert f"resuming from step {result['resumed_from_step']}" in logs_of(worker.container)
        return workers

    return disturb


@pytest.mark.long
def test_a_killed_chief_is_restarted_inside_its_container(recovered):
    chief, other = recovered(0, KILL_TRAINING)
    assert "exit code 137; restart 1 of 3" in logs_of(chief.container)
    keeps_its_process(other, "worker-0")
    assert (chief.restarts_by_the_engine, other.restarts_by_the_engine) == (0, 0)


@pytest.mark.long
def test_a_killed_worker_is_restarted_by_the_engine(recovered):
    workers = recovered(1, KILL_TRAINING, restart_policy=BY_THE_ENGINE, **NOT_INSIDE)
    assert [worker.restarts_by_the_engine for worker in workers] == [0, 1]
    keeps_its_process(workers[0], "worker-1")
    assert not [worker for worker in workers if "restart 1 of" in logs_of(worker.container)]


@pytest.mark.long
def test_a_killed_entrypoint_is_restarted_outside_and_its_peer_inside(recovered):
    chief, other = recovered(0, KILL_ENTRYPOINT, restart_policy=BY_THE_ENGINE)
    assert (chief.restarts_by_the_engine, other.restarts_by_the_engine) == (1, 0)
    keeps_its_process(other, "worker-0")
    assert "restart 1 of" not in logs_of(chief.container)
    # Its peer has ended, and the worker does not wait for it.
    ends_at_once_when_started_again(other)


def keeps_its_process(worker: Worker, lost: str) -> None:
    """Check that the worker kept its process. Over a ring, only the killed command restarts."""
    said = logs_of(worker.container)
    assert f"{lost} was lost: waiting until all 2 workers are here again" in said
    assert "restart 1 of" not in said


def ends_at_once_when_started_again(worker: Worker) -> None:
    """Start the container of a finished run; check that it ends without training."""
    began = time.time()
    worker.container.start()
    ended = wait_for_end(worker.container)
    assert ended.code == 0
    assert ended.seconds < AGAIN_SECONDS
    said = worker.container.logs(since=int(began)).decode()
    assert "this run is done" in said
    assert "strategy" not in said


@pytest.mark.long
def test_one_worker_alone_resumes_where_it_was_killed(run_container, tmp_path):
    container = run_container(
        environment=TRAINING | NOT_INSIDE,
        volumes=[f"{tmp_path}:/runs"],
        restart_policy=BY_THE_ENGINE,
    )
    worker = Worker(container, tmp_path)
    wait_for_text(container, KILLED_AFTER, RUN_SECONDS)
    worker.kill(KILL_TRAINING)
    worker.wait_until_done()
    result = worker.result()
    assert (result["status"], worker.restarts_by_the_engine) == ("done", 1)
    assert f"resuming from step {result['resumed_from_step']}" in logs_of(container)
    ends_at_once_when_started_again(worker)
