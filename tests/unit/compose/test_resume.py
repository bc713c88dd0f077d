"""The settings with which a run resumes."""

import os

import pytest

from local_cluster.commands import resume as resume_module
from local_cluster.commands.resume import keep_global_batch, resume
from local_cluster.messages import EndError
from local_cluster.settings import run_record
from local_cluster.settings.given_variables import User
from local_cluster.shared_folder import SharedFolder

WAS = {"WORKERS": "2", "TRAINER_PER_REPLICA_BATCH_SIZE": "32", "TRAINER_SEED": "7"}


def with_checkpoint(folder):
    (folder / "worker-1/checkpoints").mkdir(parents=True)
    content = b'{"TRAINER_GLOBAL_BATCH_SIZE": "64"}'
    (folder / "worker-1/checkpoints/00000010-a.npz").write_bytes(content)
    return SharedFolder(folder)


def test_the_global_batch_stays_that_of_the_checkpoint(tmp_path):
    kept = keep_global_batch(with_checkpoint(tmp_path), WAS, {})
    assert kept["TRAINER_GLOBAL_BATCH_SIZE"] == "64"
    assert not kept["TRAINER_PER_REPLICA_BATCH_SIZE"]
    assert (kept["WORKERS"], kept["TRAINER_SEED"]) == ("2", "7")


def test_a_batch_that_is_given_now_wins(tmp_path):
    given = {"TRAINER_GLOBAL_BATCH_SIZE": "8"}
    kept = keep_global_batch(with_checkpoint(tmp_path), WAS, given)
    assert kept == {"WORKERS": "2", "TRAINER_SEED": "7"}


def test_without_a_checkpoint_all_is_as_it_was(tmp_path):
    assert keep_global_batch(SharedFolder(tmp_path), WAS, {}) == WAS


@pytest.fixture
def go_on(tmp_path, monkeypatch):
    """Resume the newest run, and return the variables that `up` gets."""
    monkeypatch.setattr(resume_module, "up", lambda environ: environ)
    (tmp_path / "runs/x").mkdir(parents=True)
    (tmp_path / "runs/latest").symlink_to("x")
    place = {"RUNS_DIR": str(tmp_path / "runs"), "XDG_STATE_HOME": str(tmp_path / "state")}

    def resume_with(dotenv=(), **given):
        return resume({**place, **dict(dotenv), **given}, given)

    return resume_with


def kept(tmp_path, settings):
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    record = run_record.record_of(tmp_path / "runs", "x", state)
    record.remember(settings, User(str(os.getuid()), str(os.getgid())))


def copied(tmp_path, settings):
    (tmp_path / "runs/x" / run_record.FILE).write_bytes(run_record.render(settings))


def test_what_a_worker_writes_into_the_copy_decides_nothing(go_on, tmp_path):
    kept(tmp_path, {"WORKERS": "1", "RUN_UID": "1000"})
    theirs = {"WORKERS": "8", "OVERLAYS": "theirs.yaml", "RUN_UID": "0", "DATA_DIR": "/"}
    copied(tmp_path, {**theirs, "TRAINER_EPOCHS": "9"})
    found = go_on()
    assert (found["WORKERS"], found["RUN_UID"]) == ("1", "1000")
    assert not {"OVERLAYS", "DATA_DIR", "TRAINER_EPOCHS"} & set(found)


def test_a_run_that_only_its_copy_knows_is_refused_with_what_to_give(go_on, tmp_path):
    copied(tmp_path, {"WORKERS": "1", "OVERLAYS": "/theirs.yaml"})
    with pytest.raises(EndError) as caught:
        go_on()
    assert caught.value.code == 78
    (sentence,) = caught.value.sentences
    assert str(tmp_path / "runs/x" / run_record.FILE) in sentence
    assert "`make up-local NAME=x`" in sentence
    assert "theirs" not in sentence


def test_a_run_that_nothing_knows_is_refused(go_on, tmp_path):
    with pytest.raises(EndError, match=f"there is no {tmp_path}/runs/x/cluster.json"):
        go_on()


@pytest.mark.parametrize("target", ["../x", "/etc", ".hidden", "gone", "x/.."])
def test_the_newest_run_is_one_of_the_folder_of_runs(go_on, tmp_path, target):
    (tmp_path / "runs/latest").unlink()
    (tmp_path / "runs/latest").symlink_to(target)
    with pytest.raises(EndError, match="RUN_NAME"):
        go_on()


def test_a_run_on_machines_goes_on_with_them(go_on, tmp_path):
    kept(tmp_path, {"HOSTS": "ana@m1\nana@m2 gpus=0", "TRAINER_SEED": "7"})
    found = go_on()
    assert (found["HOSTS"], found["TRAINER_SEED"]) == ("ana@m1\nana@m2 gpus=0", "7")
    assert go_on(HOSTS="ana@m1 ana@m3")["HOSTS"] == "ana@m1 ana@m3"


def test_another_number_of_machines_needs_a_global_batch(go_on, tmp_path):
    kept(tmp_path, {"HOSTS": "ana@m1\nana@m2"})
    with pytest.raises(EndError, match="GLOBAL_BATCH"):
        go_on(HOSTS="ana@m1")
    assert go_on(HOSTS="ana@m1", TRAINER_GLOBAL_BATCH_SIZE="64")["HOSTS"] == "ana@m1"


def test_hosts_of_dotenv_are_for_new_runs(go_on, tmp_path):
    kept(tmp_path, {"WORKERS": "2"})
    assert not go_on({"HOSTS": "ana@m1 ana@m2"})["HOSTS"]
    kept(tmp_path, {"HOSTS": "ana@m1\nana@m2"})
    assert go_on({"HOSTS": "ana@m3"})["HOSTS"] == "ana@m1\nana@m2"


def test_a_run_of_this_machine_does_not_move_to_others(go_on, tmp_path):
    kept(tmp_path, {"WORKERS": "2"})
    with pytest.raises(EndError, match="HOSTS"):
        go_on(HOSTS="ana@m1 ana@m2")
