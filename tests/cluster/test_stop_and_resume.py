"""`make stop` and `make resume`: a whole cluster, one worker, and refusals."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.cluster import RESUME, STOP, resume_cluster
from harness.waiting import wait_until
from local_cluster.settings.given_variables import User
from local_cluster.settings.run_record import record_of

REPOSITORY = Path(__file__).parents[2]
EPOCHS = 80
# One epoch takes 0.1 to 0.2 s, so enough are left when the test sees the first one.
RUN = {"WORKERS": 2, "TRAINER_EPOCHS": EPOCHS, "TRAINER_STEPS_PER_EPOCH": 20, "TRAINER_SEED": 7}
SECRET = "correct-horse-battery"
FIRST_EPOCH = "test accuracy"
BANNER = "cluster-trainer 0"
START_SECONDS = 90
END_SECONDS = 180
QUICK_SECONDS = 90
STOPPED = "stopped by SIGTERM (exit code 143)"
WAITS = "{} was asked to stop; the others wait for it: `make resume WORKER={}`"
# Workers that print and wait, without TensorFlow.
IDLE = """
x-idle: &idle
  command: [python, -u, -c, "import time; print('here', flush=True); time.sleep(600)"]
services: {worker-0: *idle, worker-1: *idle}
"""


def step_of(pattern, output):
    found = re.search(pattern + r" step (\d+)", output)
    assert found, output
    return int(found[1])


def next_step(ended):
    return step_of(r"cluster-trainer: stopped; `make resume` resumes from", ended.output)


def starts(worker):
    return (worker / "container.log").read_text().count(BANNER)


@pytest.fixture(scope="module")
def story(begin, workbench):
    """A run that is stopped by `make stop`, then by Ctrl-C, and finished by one worker alone."""
    once = {"CLUSTER_TOKEN": SECRET, "TRAINER_RESUME": "never"}
    started = [begin(TRAINER_PER_REPLICA_BATCH_SIZE=32, **once, **RUN)]
    story = {}
    try:
        started[0].wait_for_text(FIRST_EPOCH, START_SECONDS)
        story["asked"] = started[0].ask(STOP)
        story["up ended before stop"] = started[0].process.poll() is not None
        story["stopped"] = started[0].end(QUICK_SECONDS)
        story["leftovers"] = workbench.leftovers()

        started.append(started[0].resume(CLUSTER_TOKEN=SECRET))
        started[1].wait_for_text(FIRST_EPOCH, START_SECONDS)
        started[1].press_ctrl_c()
        story["interrupted"] = started[1].end(QUICK_SECONDS)
        story["left by Ctrl-C"] = workbench.leftovers()
        story["results of Ctrl-C"] = story["interrupted"].results()

        started.append(started[0].resume(CLUSTER_TOKEN=SECRET, WORKERS=1))
        story["smaller"] = started[2].end(END_SECONDS)
        story["results"] = story["smaller"].results()

        started.append(started[0].resume(CLUSTER_TOKEN=SECRET))
        story["again"] = started[3].end(QUICK_SECONDS)
    finally:
        for cluster in started:
            cluster.stop()
    return story


def test_stop_ends_all_workers_with_a_checkpoint(story):
    stopped = story["stopped"]
    assert (story["asked"].returncode, stopped.code) == (0, 143), (story["asked"], stopped.output)
    assert "asking worker-0, worker-1 to stop" in story["asked"].stdout
    assert "wait for it" not in stopped.output
    assert next_step(stopped) > 0


def test_stop_returns_when_nothing_of_the_cluster_is_left(story):
    assert story["up ended before stop"]
    assert story["leftovers"] == []


def test_resume_goes_on_from_the_step_that_was_promised(story):
    assert step_of("resuming from", story["interrupted"].output) == next_step(story["stopped"])


def test_ctrl_c_leaves_a_run_that_goes_on_too(story):
    interrupted, smaller = story["interrupted"], story["smaller"]
    assert interrupted.code == 130, interrupted.output
    assert next_step(interrupted) > next_step(story["stopped"])
    assert step_of("resuming from", smaller.output) == next_step(interrupted)


def test_ctrl_c_stops_all_workers_and_leaves_nothing_on_the_engine(story):
    assert story["left by Ctrl-C"] == []
    assert [result["status"] for result in story["results of Ctrl-C"]] == ["stopped", "stopped"]


def test_another_number_of_workers_keeps_the_global_batch(story):
    assert story["smaller"].code == 0, story["smaller"].output
    assert "1 worker(s)" in story["smaller"].output
    assert "global batch 64" in story["smaller"].output


def test_settings_are_those_of_the_first_start(story):
    settings = story["results"][0]["settings"]
    assert (settings["epochs"], settings["steps_per_epoch"], settings["seed"]) == (EPOCHS, 20, 7)


def test_every_epoch_has_one_line(story):
    epochs = [metrics["epoch"] for metrics in story["smaller"].metrics()]
    assert epochs == list(range(1, EPOCHS + 1))


def test_container_logs_keep_every_start(story):
    assert [starts(worker) for worker in story["again"].workers] == [4, 2]


def test_a_run_that_is_done_ends_at_once_with_0(story):
    assert story["again"].code == 0, story["again"].output
    assert "this run is done" in story["again"].output


def test_a_secret_is_in_no_file(story):
    folder = story["again"].folder
    holders = [
        path
        for path in folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert holders == []


def test_one_worker_stops_and_comes_back(start):
    epochs = EPOCHS // 2
    cluster = start(**RUN | {"TRAINER_EPOCHS": epochs})
    cluster.wait_for_text(FIRST_EPOCH, START_SECONDS)
    assert cluster.ask(STOP, "1").returncode == 0
    cluster.wait_for_text(WAITS.format("worker-1", 1), QUICK_SECONDS)
    cluster.wait_for_text("worker-0 | ", QUICK_SECONDS)
    cluster.wait_for_text("waiting for 1 of 2 workers", QUICK_SECONDS)
    assert cluster.process.poll() is None
    back = cluster.ask(RESUME, "1")
    assert (back.returncode, back.stdout) == (0, "cluster-trainer: worker-1 is started again\n")
    ended = cluster.end(END_SECONDS).raise_unless_done()
    assert step_of("resuming from", ended.output) > 0
    assert [metrics["epoch"] for metrics in ended.metrics()] == list(range(1, epochs + 1))
    assert_every_line_is_shown_and_kept_once(ended)


def assert_every_line_is_shown_and_kept_once(ended):
    chief, worker = ended.workers
    assert (starts(chief), starts(worker)) == (1, 2)
    kept = (worker / "container.log").read_text().splitlines()
    shown = [line for line in ended.output.splitlines() if line.startswith("worker-1 | ")]
    assert not any(" ERROR " in line for line in kept)
    for mark in (BANNER, STOPPED, "resuming from step", "done: results in"):
        count = sum(mark in line for line in kept)
        assert count == sum(mark in line for line in shown) == (2 if mark == BANNER else 1), mark


@pytest.mark.long  # test_lost_worker.py tests the wait, test_wrong_index.py the end
def test_others_that_wait_in_vain_end_the_cluster(start):
    cluster = start(RENDEZVOUS_TIMEOUT=10, **RUN)
    cluster.wait_for_text(FIRST_EPOCH, START_SECONDS)
    assert cluster.ask(STOP, "1").returncode == 0
    ended = cluster.end(END_SECONDS)
    assert ended.code == 75, ended.output
    assert "worker-0 ended, with exit code 75 (it lost a peer)" in ended.output
    assert "failed with exit code 75; `make resume` resumes from step " in ended.output


@pytest.fixture
def idle(start, tmp_path):
    overlay = tmp_path / "idle.yaml"
    overlay.write_text(IDLE)
    cluster = start(WORKERS=2, OVERLAYS=overlay)
    for service in ("worker-0", "worker-1"):
        cluster.wait_for_text(f"{service} | here", QUICK_SECONDS)
    return cluster


def test_workers_that_are_stopped_one_by_one_are_a_stop_of_all(idle):
    assert idle.ask(STOP, "1").returncode == 0
    idle.wait_for_text(WAITS.format("worker-1", 1), QUICK_SECONDS)
    assert idle.ask(STOP, "0").returncode == 0
    ended = idle.end(QUICK_SECONDS)
    assert ended.code == 143, ended.output
    assert ended.output.count("wait for it") == 1
    assert "stopped; `make resume` begins at step 0" in ended.output


def test_a_worker_that_is_not_there_is_refused(idle):
    stop, resume = idle.ask(STOP, "2"), idle.ask(RESUME, "1")
    assert (stop.returncode, resume.returncode) == (78, 78)
    assert 'WORKER: received "2"' in stop.stderr
    assert stop.stderr.rstrip().endswith(": 0, 1.")
    assert 'WORKER: received "1"' in resume.stderr
    assert idle.process.poll() is None


@pytest.mark.long
def test_a_worker_that_is_killed_again_and_again_ends_the_cluster(idle, workbench):
    assert idle.ask(STOP, "1").returncode == 0
    assert idle.ask(RESUME, "1").returncode == 0
    idle.wait_for_text("worker-1 is started again", QUICK_SECONDS)
    (victim,) = (item for item in workbench.containers() if "worker-1" in item.name)
    for count in range(1, 4):
        victim.kill("SIGKILL")
        again = f"worker-1 was killed: starting its container again, {count} of 3"
        idle.wait_for_text(again, QUICK_SECONDS)
        wait_until(lambda: _runs(victim), QUICK_SECONDS, "it runs again", idle.output)
    victim.kill("SIGKILL")
    ended = idle.end(QUICK_SECONDS)
    assert ended.code == 137, ended.output
    assert "worker-1 ended, with exit code 137 (killed)" in ended.output


@pytest.mark.long  # tests/unit/compose/test_killed.py
def test_a_container_that_was_removed_ends_the_cluster(idle, workbench):
    (victim,) = (item for item in workbench.containers() if "worker-1" in item.name)
    victim.remove(force=True)
    ended = idle.end(QUICK_SECONDS)
    assert ended.code == 137, ended.output
    assert "worker-1 ended first, with exit code 137 (killed)" in ended.output


def _runs(container):
    container.reload()
    return container.status == "running"


def test_stop_without_a_cluster(workbench):
    environ = {**os.environ, "COMPOSE_PROJECT_NAME": workbench.new_name("none")}
    done = subprocess.run(STOP, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "no worker of the project" in done.stderr


@pytest.fixture
def resume_at(workbench, tmp_path):
    """Try to resume a run that was started with these settings, or a run that does not exist."""
    started = []

    def resume(settings=None, **environ):
        if settings is not None:
            run = tmp_path / "runs/test"
            run.mkdir(parents=True)
            user = User(str(os.getuid()), str(os.getgid()))
            record_of(tmp_path / "runs", "test", os.environ).remember(settings, user)
            (tmp_path / "runs/latest").symlink_to("test")
        place = {"COMPOSE_PROJECT_NAME": workbench.new_name("resume"), "IMAGE": workbench.image}
        started.append(resume_cluster(tmp_path, place | environ))
        return started[-1].end(QUICK_SECONDS)

    yield resume
    for cluster in started:
        cluster.stop()


@pytest.mark.parametrize(
    ("settings", "environ", "sentence"),
    [
        (None, {}, "there is no run to resume in "),
        (
            {"WORKERS": "1"},
            {"RUN_NAME": "other"},
            'RUN_NAME: received "other"; accepted: a run that',
        ),
        (
            {"WORKERS": "1", "CLUSTER_TOKEN": "x" * 16},
            {},
            "CLUSTER_TOKEN: not set",
        ),
        ({"WORKERS": "many"}, {}, "WORKERS in "),
        ({"WORKERS": "1"}, {"WORKERS": "9"}, 'WORKERS: received "9"'),
    ],
    ids=["no-run", "other-run", "token", "damaged", "what-is-set-here"],
)
def test_a_run_that_cannot_go_on_is_refused(resume_at, settings, environ, sentence):
    ended = resume_at(settings, **environ)
    assert (ended.code, len(ended.output.splitlines())) == (78, 1), ended.output
    assert ended.output.startswith(f"cluster-trainer: {sentence}")


def test_settings_that_the_workers_refuse_are_not_remembered(resume_at, tmp_path):
    settings = {"WORKERS": "1", "TRAINER_EPOCHS": "1"}
    ended = resume_at(settings, TRAINER_MODEL="no-such-model", DATA_DIR=str(tmp_path))
    assert ended.code == 78, ended.output
    assert json.loads((ended.folder / "cluster.json").read_text())["settings"] == settings


def test_make_hands_on_the_runs_own_image(workbench, tmp_path):
    (tmp_path / "test").mkdir()
    user = User(str(os.getuid()), str(os.getgid()))
    was = {"WORKERS": "1", "IMAGE": "cluster-trainer:of-the-run"}
    record_of(tmp_path, "test", os.environ).remember(was, user)
    own = ("IMAGE", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL")
    environ = {name: text for name, text in os.environ.items() if name not in own}
    environ |= {"RUNS_DIR": str(tmp_path), "COMPOSE_PROJECT_NAME": workbench.new_name("make")}
    for given, image in ([], "cluster-trainer:of-the-run"), (["IMAGE=other:one"], "other:one"):
        command = ["make", "--directory", str(REPOSITORY), "resume", "NAME=test", *given]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert f"there is no image {image} here" in done.stderr
