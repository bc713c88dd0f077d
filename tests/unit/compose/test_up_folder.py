"""`make up-local` in a run's folder: files are made anew or moved aside, links never followed."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.waiting import wait_until

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[3] / "compose/cluster.py"
# A worker that ends at once. `logs` runs the script of a test, which prints the worker's lines.
DOCKER = """#!/bin/sh
here="$(dirname "$0")"
event() { echo "$1 worker-0 $2 - id-0 1795351041850215000"; }
case "$1" in
    events) event start -; while [ ! -e "$here/ended-$RUN_NAME" ]; do sleep 0.05; done
        event die $(cat "$here/code"); exec sleep 60;;
    logs) . "$here/worker"; touch "$here/ended-$RUN_NAME";;
esac
"""


@pytest.fixture
def up(tmp_path):
    """Run `cluster.py up` with one worker, and return what it printed and its exit code."""
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)

    def run(worker="echo here", code=0, **environ):
        (tmp_path / "worker").write_text(worker)
        (tmp_path / "code").write_text(f"{code}")
        for mark in tmp_path.glob("ended-*"):
            mark.unlink()
        place = {"RUNS_DIR": str(tmp_path / "runs"), "XDG_STATE_HOME": str(tmp_path / "state")}
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin", "WORKERS": "1"}
        return subprocess.run(
            [sys.executable, PROGRAM, "up"],
            env={**os.environ, **place, **path, **environ},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_a_link_that_a_worker_puts_in_the_place_of_its_log_gets_nothing(up, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine\n")
    log = tmp_path / "runs/x/worker-0/container.log"
    swap = f"echo first; sleep 0.2; mv {log} {log}.old; ln -s {mine} {log}; echo second"
    done = up(swap, RUN_NAME="x")
    assert done.returncode == 0, done
    assert mine.read_text() == "mine\n"
    assert Path(f"{log}.old").read_text() == "first\nsecond\n"
    again = up(RUN_NAME="x")
    assert again.returncode == 78, again
    assert str(log) in again.stderr
    assert mine.read_text() == "mine\n"


def test_two_clusters_of_one_second_have_a_folder_each(up, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        projects = [f"p{number}" for number in range(4)]
        done = [*pool.map(lambda name: up(COMPOSE_PROJECT_NAME=name), projects)]
    assert [one.returncode for one in done] == [0] * 4, done
    folders = [one for one in (tmp_path / "runs").iterdir() if (one / "worker-0").is_dir()]
    assert len([one for one in folders if not one.is_symlink()]) == 4
    assert all((one / "worker-0/container.log").read_text() == "here\n" for one in folders)


def scripts(tmp_path):
    for name in ("first.py", "second.py"):
        (tmp_path / name).touch()
    return str(tmp_path / "first.py"), str(tmp_path / "second.py")


def test_another_script_moves_the_first_ones_log_and_settings_aside(up, tmp_path):
    first, second = scripts(tmp_path)
    assert up("echo one", RUN_NAME="x", SCRIPT=first).returncode == 0
    run = tmp_path / "runs/x"
    (run / "model.keras").write_text("of the first script")
    was = (run / "cluster.json").read_text()
    assert up("echo two", RUN_NAME="x", SCRIPT=second).returncode == 0
    (aside,) = (run / "earlier").iterdir()
    assert aside.name.endswith("-first")
    assert (aside / "cluster.json").read_text() == was
    assert (aside / "worker-0/container.log").read_text() == "one\n"
    assert (run / "worker-0/container.log").read_text() == "two\n"
    assert second in (run / "cluster.json").read_text()
    assert (run / "model.keras").read_text() == "of the first script"
    # A third start gets a folder of its own, even within the same second.
    assert up("echo three", RUN_NAME="x", SCRIPT=first).returncode == 0
    assert len(list((run / "earlier").iterdir())) == 2


def test_the_same_again_goes_on_in_the_same_files(up, tmp_path):
    for _ in range(2):
        assert up(RUN_NAME="x", TRAINER_EPOCHS="2").returncode == 0
    run = tmp_path / "runs/x"
    assert (run / "worker-0/container.log").read_text() == "here\nhere\n"
    assert not (run / "earlier").exists()
    assert up(RUN_NAME="x", TRAINER_EPOCHS="3").returncode == 0
    (aside,) = (run / "earlier").iterdir()
    assert '"TRAINER_EPOCHS": "2"' in (aside / "cluster.json").read_text()
    assert (run / "worker-0/container.log").read_text() == "here\nhere\nhere\n"


def test_what_the_workers_refuse_leaves_the_settings_as_they_were(up, tmp_path):
    assert up(RUN_NAME="x", TRAINER_EPOCHS="2").returncode == 0
    run = tmp_path / "runs/x"
    was = (run / "cluster.json").read_text()
    refused = up(code=78, RUN_NAME="x", TRAINER_EPOCHS="2", TRAINER_MODEL="other")
    assert refused.returncode == 78, refused
    assert (run / "cluster.json").read_text() == was
    assert not list((run / "earlier").iterdir())


def test_what_a_worker_could_write_is_put_back_but_not_kept(up, tmp_path):
    run = tmp_path / "runs/x"
    run.mkdir(parents=True)
    theirs = '{"settings": {"OVERLAYS": "theirs.yaml"}}'
    (run / "cluster.json").write_text(theirs)
    refused = up(code=78, RUN_NAME="x", TRAINER_MODEL="other")
    assert refused.returncode == 78, refused
    assert (run / "cluster.json").read_text() == theirs
    assert not list((tmp_path / "state/cluster-trainer/runs").glob("*/*.json"))


def test_the_first_settings_of_a_run_stay_even_if_they_were_refused(up, tmp_path):
    assert up(code=78, RUN_NAME="x", TRAINER_EPOCHS="2").returncode == 78
    (kept,) = (tmp_path / "state/cluster-trainer/runs").glob("*/x.json")
    assert '"TRAINER_EPOCHS": "2"' in kept.read_text()


def test_two_starts_of_one_project_or_one_run_do_not_disturb_each_other(up, tmp_path):
    first, second = scripts(tmp_path)
    run = tmp_path / "runs/x"
    log = run / "worker-0/container.log"
    wait = f"echo first; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo end"
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(up, wait, RUN_NAME="x", SCRIPT=first, COMPOSE_PROJECT_NAME="one")
        try:
            has_begun = lambda: log.exists() and log.read_text()  # noqa: E731
            wait_until(has_begun, 30, "the first start's line", lambda: "")
            was = (run / "cluster.json").read_text()
            link = tmp_path / "link"
            link.symlink_to("runs")
            same = [
                ("COMPOSE_PROJECT_NAME: a cluster of the project one", {"RUN_NAME": "y"}),
                ("COMPOSE_PROJECT_NAME: a cluster of the project one", {}),
                ('RUN_NAME: received "x"', {"RUN_NAME": "x", "COMPOSE_PROJECT_NAME": "two"}),
                (
                    'RUN_NAME: received "x"',
                    {"RUN_NAME": "x", "COMPOSE_PROJECT_NAME": "two", "RUNS_DIR": str(link)},
                ),
            ]
            for sentence, given in same:
                done = up(SCRIPT=second, **{"COMPOSE_PROJECT_NAME": "one", **given})
                assert done.returncode == 78, done
                assert sentence in done.stderr
            assert (run / "cluster.json").read_text() == was
            assert sorted(one.name for one in run.parent.iterdir() if one.name[0] != ".") == [
                *("latest", "x"),
            ]
            other = up(SCRIPT=second, RUN_NAME="y", COMPOSE_PROJECT_NAME="two")
            assert other.returncode == 0, other
        finally:
            (tmp_path / "go").touch()
        assert started.result().returncode == 0, started.result()
    assert log.read_text() == "first\nend\n"
    assert not (run / "earlier").exists()
    assert up(RUN_NAME="x", SCRIPT=first, COMPOSE_PROJECT_NAME="one").returncode == 0


def test_a_folder_in_the_place_of_latest_is_named_and_no_half_made_run_is_left(up, tmp_path):
    (tmp_path / "runs/latest").mkdir(parents=True)
    for name in ("x", ""):
        done = up(RUN_NAME=name)
        assert done.returncode == 78, done
        assert f"{tmp_path}/runs/latest: Is a directory" in done.stderr
        assert [one.name for one in (tmp_path / "runs").iterdir()] == ["latest"]


def test_a_folder_in_the_place_of_the_copy_is_named_by_its_whole_path(up, tmp_path):
    (tmp_path / "runs/x/cluster.json").mkdir(parents=True)
    done = up(RUN_NAME="x")
    assert done.returncode == 78, done
    assert f"{tmp_path}/runs/x/cluster.json: Is a directory" in done.stderr


@pytest.mark.parametrize("where", ["ssh://ana@m1", "tcp://10.0.0.1:2375"])
def test_an_engine_without_this_machines_folders_is_refused_before_anything_changes(
    up, tmp_path, where
):
    docker = tmp_path / "docker"
    elsewhere = f'context) echo default {where};; create) echo "no such path" >&2; exit 1;;'
    was = docker.read_text()
    docker.write_text(was.replace('case "$1" in', f'case "$1" in {elsewhere}'))
    done = up()
    assert done.returncode == 78, done
    assert f'DOCKER_HOST: received "{where}"' in done.stderr
    assert [*(tmp_path / "runs").iterdir()] == []
    docker.write_text(was.replace('case "$1" in', f'case "$1" in context) echo default {where};;'))
    assert up().returncode == 0  # it has them


def test_settings_that_cannot_be_put_back_are_told_of(up, tmp_path):
    assert up(RUN_NAME="x", TRAINER_EPOCHS="2").returncode == 0
    state = tmp_path / "state/cluster-trainer/runs"
    done = up(f"mv {state} {state}-gone; touch {state}", 78, RUN_NAME="x", TRAINER_EPOCHS="3")
    assert done.returncode == 78, done
    assert "could not be restored" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_record_that_is_a_folder_ends_a_start_in_words(up, tmp_path):
    assert up(RUN_NAME="x").returncode == 0
    (kept,) = (tmp_path / "state/cluster-trainer/runs").glob("*/x.json")
    kept.unlink()
    kept.mkdir()
    done = up(RUN_NAME="x")
    assert done.returncode == 78, done
    assert str(kept) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("image", "is_told"), [("mine:gpu", True), ("mine:cpu", False)])
def test_an_image_for_gpus_on_an_engine_without_them_is_told(up, image, is_told):
    done = up(RUN_NAME="x", IMAGE=image)
    assert done.returncode == 0, done
    assert ("the workers train on the CPU" in done.stderr) is is_told
