"""What a report reads of a run's folder, and the command that runs it again."""

import json
import shlex
from itertools import pairwise

import pytest

from cluster_trainer.report import again
from cluster_trainer.report.__main__ import main
from cluster_trainer.report.run import read_run
from cluster_trainer.settings.config import TrainerConfig


@pytest.fixture
def folder(tmp_path):
    """Return a run of two workers, of which the second has left less."""
    settings = TrainerConfig.read({"TRAINER_EPOCHS": "7", "TRAINER_METRICS": "a,b"}, []).as_json()
    chief, other = tmp_path / "first/worker-0", tmp_path / "first/worker-10"
    (tmp_path / "first/worker-2").mkdir(parents=True)
    for one in (chief, other):
        one.mkdir(parents=True)
    (chief / "result.json").write_text(json.dumps({"settings": settings, "workers": 2}))
    (chief / "metrics.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n{"ep')
    (other / "events.jsonl").write_text('{"time": 5, "state": "b"}\n\n[]\n{"time": 1}\n{"ti')
    return tmp_path / "first"


def test_workers_come_in_the_order_of_their_numbers(folder):
    assert [one.name for one in read_run(folder).workers] == ["worker-0", "worker-2", "worker-10"]


def test_lines_that_were_cut_are_left_out_and_events_are_in_order(folder):
    run = read_run(folder)
    assert run.chief.metrics == [{"epoch": 1}, {"epoch": 2}]
    assert [event["time"] for event in run.workers[2].events] == [1, 5]
    assert run.began == 1


def test_the_command_names_the_settings_that_were_given(folder):
    words = shlex.split(again.command(read_run(folder)).replace('"$PWD/runs:/runs"', "x"))
    given = [word for before, word in pairwise(words) if before == "-e"]
    assert {"TRAINER_EPOCHS=7", "TRAINER_METRICS=a,b", "WORKER_HOSTS=…"} <= {*given}
    assert len([one for one in given if one.startswith("TRAINER_")]) == 3  # and the run_dir


def test_what_a_local_cluster_was_started_with_is_one_command(folder):
    (folder / "cluster.env").write_text(
        "# A comment\nWORKERS=2\nRUN_UID=5\nCLUSTER_TOKEN=\n"
        'TRAINER_MODEL="a b; $(rm -r /)"\nTRAINER_EPOCHS=7\n'
    )
    assert shlex.split(again.command(read_run(folder))) == [
        *("env", "WORKERS=2", "TRAINER_MODEL=a b; $(rm -r /)", "TRAINER_EPOCHS=7"),
        *("make", "up-local"),
    ]


def test_a_folder_without_a_run_is_refused_and_the_runs_beside_it_are_named(folder, capsys):
    assert main([str(folder.parent / "frist")]) == 78
    said = capsys.readouterr().err
    assert 'frist"; accepted: a folder of a run, with worker-0/ in it. There are: first.' in said
