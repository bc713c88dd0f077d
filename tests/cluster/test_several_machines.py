"""`up` with HOSTS: machines with SSH and Docker form one cluster. Each machine is a container."""

import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from harness.board import open_board
from harness.ssh_machines import ssh_machines
from harness.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

EPOCHS = 20
TRAINING = {"TRAINER_EPOCHS": str(EPOCHS), "TRAINER_CHECKPOINT_STEPS": "10", "TRAINER_THREADS": "1"}
TWO = "ana@m1 ana@m2"
# So many epochs follow that the disturbance comes during training.
IN_THE_MIDDLE = "epoch  1/20  step"
FIRST_STEP_SECONDS = 60
RUN_SECONDS = 240
# SSH gives up after 10 s, and the test of the connections after 15 to 18 s. The rest is for a busy
# machine.
SILENT_SECONDS, BLOCKED_SECONDS = 30, 60
# Records are copied every 20 s, and TensorBoard reads them every 5 s.
CURVES_SECONDS = 120
GONE_SECONDS = 20
HOSTS_FILE = """
ana@m1
ana@m1 port=2300 dir=/home/ana/other  # a second worker
ana@m2 data=/srv address=m2
"""
MODULE = "def loss_of(): return 'mse'\n"
SCRIPT = """
import keras
import numpy as np

from parts import loss_of

model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", loss_of())
rows = np.arange(64, dtype="float32").reshape(64, 1) / 64
model.fit(rows, 2 * rows, batch_size=16, epochs=2, verbose=0)
print("the script is done", flush=True)
"""


@pytest.fixture(scope="module")
def operator(workbench, tmp_path_factory):
    """Three machines, two of which have the image, and the operator who trains on them."""
    folder = tmp_path_factory.mktemp("operator")
    with ssh_machines(workbench, ["m1", "m2", "m3"], folder) as made:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda machine: machine.load(workbench.image), made.machines[:2]))
        yield made


@pytest.fixture(autouse=True)
def _remove(operator):
    """Remove the cluster from the machines, for the next test."""
    yield
    operator.run("down")
    for machine in operator.machines:
        # After a refusal, Docker may still be removing a container that has tested connections.
        containers = partial(machine.ask, "docker", "ps", "--all", "--quiet")
        wait_until(lambda ask=containers: not ask(), GONE_SECONDS, "none is left", containers)


@pytest.fixture(scope="module")
def undisturbed(run):
    """The weights' digest of the same run on this machine."""
    ended = run(WORKERS=2, **TRAINING).raise_unless_done()
    (digest,) = {one["weights_sha256"] for one in ended.results()}
    return digest


@pytest.fixture
def start(operator, workbench):
    def start_run(name, **environ):
        given = {"IMAGE": workbench.image, "RUN_NAME": name, "HOSTS": TWO, **TRAINING}
        return operator.start("up", **given | environ)

    return start_run


def digest_of(operator, run):
    """Fetch a run; return the weights' digest that all of its workers share."""
    done = operator.run("fetch")
    assert done.returncode == 0, done.stdout
    files = [operator.folder / f"runs/{run}/worker-{index}/result.json" for index in range(2)]
    results = [json.loads(file.read_text()) for file in files]
    assert {one["status"] for one in results} == {"done"}
    (digest,) = {one["weights_sha256"] for one in results}
    return digest


def status_of(operator):
    """Return the state of each worker."""
    return states_in(operator.run("status", "--json").stdout)


def states_in(text):
    return {one["worker"]: one["state"] for one in json.loads(text)}


def problems_of(running):
    """Return the lines about machines in the list of an `up` that was refused."""
    assert running.output().count("nothing was started") == 1, running.output()
    begin = r"cluster-trainer: (?=\w+@m\d: )"
    return [line for line in running.output().splitlines() if re.match(begin, line)]


def names_in(lines):
    return [line.split()[1] for line in lines]


def metrics_of(operator, run):
    """Return the chief's lines of metrics that were fetched."""
    file = operator.folder / f"runs/{run}/worker-0/metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_two_machines_train_as_one_here_does(operator, start, undisturbed):
    begin = time.monotonic()
    running = start("plain")
    running.wait_for_text(IN_THE_MIDDLE, RUN_SECONDS)
    took = time.monotonic() - begin
    assert running.end(RUN_SECONDS) == 0, running.output()
    assert digest_of(operator, "plain") == undisturbed
    assert (operator.folder / "runs/plain/worker-0/model.keras").is_file()
    assert status_of(operator) == {"worker-0": "done", "worker-1": "done"}
    assert operator.run("logs").stdout.count("done: results in") == 2
    assert operator.run("attach").returncode == 0
    assert took < FIRST_STEP_SECONDS, running.output()


def test_what_is_wrong_with_all_machines_is_one_list(operator, start):
    operator.machines[1].ask("/usr/sbin/sshd", "-h", "/etc/ssh/host", "-p", "2222")
    running = start("wrong", HOSTS="ana@m1 ana@m2 ana@m9 root@m3", TRAINER_EPOCHS=1)
    assert running.end(60) == 78, running.output()
    assert names_in(problems_of(running)) == ["ana@m2:", "ana@m9:", "root@m3:"], running.output()
    assert not (operator.folder / "runs/wrong").exists()
    operator.machines[1].ask("pkill", "-f", "host -p 2222")


@pytest.mark.parametrize("way", ["dropping", "frozen"])
def test_a_silent_machine_is_in_the_list_with_all_other_problems(operator, start, way):
    with getattr(operator.machines[2], way)():
        running = start("silent", HOSTS="ana@m1 ana@m3 root@m2", TRAINER_EPOCHS=1)
        assert running.end(SILENT_SECONDS) == 78, running.output()
    assert names_in(problems_of(running)) == ["ana@m3:", "root@m2:"], running.output()
    assert not (operator.folder / "runs/silent").exists()
    assert not operator.machines[0].ask("docker", "ps", "--all", "--quiet")


def test_a_port_that_is_blocked_for_one_machine_is_named_with_both_and_the_direction(
    operator, start
):
    first, second = operator.machines[:2]
    of_first = ("--protocol", "tcp", "--source", first.address, "--dport", "2222")
    with second.dropping(*of_first):
        running = start("blocked", TRAINER_EPOCHS=1)
        assert running.end(BLOCKED_SECONDS) == 78, running.output()
    (line,) = problems_of(running)
    assert names_in([line]) == ["ana@m1:"]
    assert f" ana@m2 at {second.address}:2222 " in line
    assert not (operator.folder / "runs/blocked").exists()
    for machine in (first, second):
        assert not machine.ask("docker", "ps", "--all", "--quiet")


@pytest.fixture
def own_image(operator, workbench):
    """The image under a name that make does not build, here and where the image is."""
    name = workbench.new_name("image")
    workbench.inspect_image().tag(name)
    for machine in operator.machines[:2]:
        machine.ask("docker", "tag", workbench.image, name)
    yield name
    workbench.client.images.remove(name)


def test_make_trains_reports_fetches_and_removes(operator, own_image):
    trained = operator.make("up", f"HOSTS={TWO}", "NAME=made", "EPOCHS=3", f"IMAGE={own_image}")
    assert trained.returncode == 0, trained.stdout
    shown = operator.make("status", "JSON=1")
    assert states_in(shown.stdout) == {"worker-0": "done", "worker-1": "done"}

    written = operator.make("report", f"IMAGE={own_image}")
    assert written.returncode == 0, written.stdout
    assert_reported(operator, "made")
    assert not (operator.folder / "runs/made/worker-0/model.keras").exists()

    fetched = operator.make("fetch")
    assert fetched.returncode == 0, fetched.stdout
    assert (operator.folder / "runs/made/worker-0/model.keras").is_file()
    assert digest_of(operator, "made")

    removed = operator.make("down")
    assert removed.returncode == 0, removed.stdout
    for machine in operator.machines:
        assert not machine.ask("docker", "ps", "--all", "--quiet")


def assert_reported(operator, run):
    """Check that a run's page has its curves, its last accuracy, and both workers' ends."""
    page = (operator.folder / f"runs/{run}/report.html").read_text()
    drawn = re.findall('role="img" aria-label="([^"]+)"', page)
    assert {"loss", "accuracy", "timeline"} <= {*drawn}, drawn
    lines = metrics_of(operator, run)
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert f"<dd>{lines[-1]['test_accuracy']:.4g}</dd>" in page
    assert {"worker-0", "worker-1"} <= {*re.findall("<td>(worker-[0-9])</td>", page)}


def test_tensorboard_follows_a_run_and_leaves_nothing(operator, start, workbench):
    running = start("curves")
    running.wait_for_text(IN_THE_MIDDLE, RUN_SECONDS)
    output = operator.folder / "tensorboard.log"
    with open_board(operator.folder / "runs", workbench.image, output, operator.environ) as board:
        wait_until(lambda: points_of(board), CURVES_SECONDS, "the run is shown", board.output)
        assert running.end(RUN_SECONDS) == 0, running.output()
        both = {"curves/worker-0/tensorboard", "curves/worker-1/tensorboard"}
        are_all = lambda: len(points_of(board)) == EPOCHS and both <= runs_on(board)  # noqa: E731
        wait_until(are_all, CURVES_SECONDS, "all epochs are shown", board.output)
        lines = metrics_of(operator, "curves")
        expected = [(line["step"], pytest.approx(line["loss"])) for line in lines]
        assert points_of(board) == expected
        assert "<title>TensorBoard</title>" in board.page()
        name = {"name": f"cluster-trainer-tensorboard-{board.port}"}
        (container,) = workbench.client.containers.list(filters=name)
        ports = [port for ports in container.ports.values() for port in ports or ()]
        assert {port["HostIp"] for port in ports} == {"127.0.0.1"}
        assert board.press_ctrl_c() == 0, board.output()
    assert not workbench.client.containers.list(all=True, filters=name)
    left = lambda: "\n".join(operator.processes())  # noqa: E731
    wait_until(lambda: not left(), GONE_SECONDS, "no process is left here", left)
    for machine in operator.machines:
        nobody = "! pgrep --euid ana"
        machine.wait(nobody, GONE_SECONDS, "no process is left there", board.output)


def runs_on(board):
    return {*(board.ask("data/plugin/scalars/tags") or ())}


def points_of(board):
    """Return the steps and losses of the run's curve that TensorBoard has read so far."""
    of_run = {"run": "curves/worker-0/tensorboard/train", "tag": "epoch/loss"}
    curve = board.ask("data/plugin/scalars/scalars", **of_run)
    return [(step, value) for _, step, value in curve or ()]


def test_the_script_and_its_folder_are_copied(operator, start, tmp_path):
    (tmp_path / "parts.py").write_text(MODULE)
    (tmp_path / "train.py").write_text(SCRIPT)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(HOSTS_FILE)
    running = start("script", SCRIPT=tmp_path / "train.py", HOSTS=hosts, VERBOSE=1)
    assert running.end(RUN_SECONDS) == 0, running.output()
    assert running.output().count("the script is done") == 3
    assert operator.run("fetch").returncode == 0
    fetched = [*operator.folder.glob("runs/script/worker-*/container.log")]
    assert ["the script is done" in one.read_text() for one in fetched] == [True] * 3
    operator.machines[0].ask("test", "-d", "/home/ana/other/runs/script/worker-1")


def test_a_mistake_in_the_settings_ends_all(start):
    running = start("mistake", TRAINER_EPOCHS="five")
    assert running.end(RUN_SECONDS) == 78, running.output()


def test_a_machine_that_is_switched_off_comes_back(operator, start, undisturbed):
    running = start("killed")
    running.wait_for_text(IN_THE_MIDDLE, RUN_SECONDS)
    lost = operator.machines[1]
    lost.switch_off()
    running.wait_for_text("ana@m2 does not answer", 60)
    assert status_of(operator)["worker-1"] == "unreachable"
    lost.switch_on()
    running.wait_for_text("ana@m2 answers again", 60)
    assert running.end(RUN_SECONDS) == 0, running.output()
    assert "resuming from step" in running.output()
    assert digest_of(operator, "killed") == undisturbed


def test_the_workers_need_neither_the_connection_nor_the_operator(operator, start, undisturbed):
    running = start("alone")
    running.wait_for_text(IN_THE_MIDDLE, RUN_SECONDS)
    operator.machines[0].ask("pkill", "-u", "ana", "sshd")
    running.wait_for_text("ana@m1 answers again", 60)
    os.killpg(running.process.pid, signal.SIGKILL)
    running.end(10)
    attached = operator.start("attach")
    assert attached.end(RUN_SECONDS) == 0, attached.output()
    assert digest_of(operator, "alone") == undisturbed
    lines = [line for line in running.output().splitlines() if "| " in line]
    assert len(lines) == len(set(lines))


def test_ctrl_c_detaches_and_stop_and_resume_go_on_at_a_checkpoint(operator, start, undisturbed):
    running = start("stopped")
    running.wait_for_text(IN_THE_MIDDLE, RUN_SECONDS)
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.end(30) == 130, running.output()
    nothing = "! pgrep --euid ana docker"
    operator.machines[0].wait(nothing, 10, "no command of its is left", running.output)
    assert set(status_of(operator).values()) == {"training"}
    stopped = operator.run("stop")
    assert stopped.returncode == 0, stopped.stdout
    assert status_of(operator) == {"worker-0": "stopped", "worker-1": "stopped"}
    resumed = operator.start("resume")
    assert resumed.end(RUN_SECONDS) == 0, resumed.output()
    assert "resuming from step" in resumed.output()
    assert digest_of(operator, "stopped") == undisturbed


def test_another_machine_takes_the_place_of_one(operator, start, undisturbed):
    running = start("replaced")
    running.wait_for_text(IN_THE_MIDDLE, RUN_SECONDS)
    operator.machines[1].switch_off()
    try:
        refused = operator.run("replace", "ana@m2", "ana@m9")
        assert refused.returncode == 78, refused.stdout
        replaced = operator.start("replace", "ana@m2", "ana@m3")
        assert replaced.end(RUN_SECONDS) == 0, replaced.output()
        assert "resuming from step" in replaced.output()
        assert digest_of(operator, "replaced") == undisturbed
        assert running.end(60) == 1, running.output()
    finally:
        operator.machines[1].switch_on()
        operator.machines[1].ask(
            "bash", "-c", "docker ps -aq | xargs --no-run-if-empty docker rm -f"
        )
