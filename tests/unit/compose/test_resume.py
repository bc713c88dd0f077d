"""What a run goes on with."""

import os
import shlex

import pytest

from local_cluster.commands import resume as resume_module
from local_cluster.commands.resume import keep_global_batch, resume
from local_cluster.compose import settled
from local_cluster.messages import EndError
from local_cluster.settings import remembered
from local_cluster.settings.given import User
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
    """Resume the newest run, and return what `up` is given."""
    monkeypatch.setattr(resume_module, "up", lambda environ: environ)
    (tmp_path / "runs/x").mkdir(parents=True)
    (tmp_path / "runs/latest").symlink_to("x")
    place = {"RUNS_DIR": str(tmp_path / "runs"), "XDG_STATE_HOME": str(tmp_path / "state")}

    def resume_with(**given):
        return resume({**place, **given}, given)

    return resume_with


def kept(tmp_path, settings):
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    record = remembered.record_of(tmp_path / "runs", "x", state)
    record.remember(settings, User(str(os.getuid()), str(os.getgid())))


def copied(tmp_path, settings):
    (tmp_path / "runs/x" / remembered.FILE).write_bytes(remembered.render(settings))


def test_what_a_worker_writes_into_the_copy_decides_nothing(go_on, tmp_path):
    kept(tmp_path, {"WORKERS": "1", "RUN_UID": "1000"})
    theirs = {"WORKERS": "8", "OVERLAYS": "theirs.yaml", "RUN_UID": "0", "DATA_DIR": "/"}
    copied(tmp_path, {**theirs, "TRAINER_EPOCHS": "9"})
    found = go_on()
    assert (found["WORKERS"], found["RUN_UID"]) == ("1", "1000")
    assert not {"OVERLAYS", "DATA_DIR", "TRAINER_EPOCHS"} & set(found)


@pytest.mark.parametrize(
    ("name", "text", "mine"),
    [
        ("OVERLAYS", "/theirs.yaml", __file__),
        ("RUN_UID", "0" if os.getuid() else "1000", "7"),
        ("DATA_DIR", "/", "/usr"),
        ("WORKSPACE_DIR", "/", "/usr"),
        ("SCRIPT", "/etc/x.py", __file__),
        ("IMAGE", "theirs:1", "mine:1"),
        ("NETWORK", "host", "bridge"),
        ("GRACE_SECONDS", "999999", "30"),
        ("WORKER_0_GPUS", "all", "1"),
    ],
)
def test_of_an_older_run_what_decides_about_the_machine_has_to_be_given_again(
    go_on, tmp_path, name, text, mine
):
    copied(tmp_path, {"WORKERS": "1", name: text})
    with pytest.raises(EndError) as caught:
        go_on()
    assert caught.value.code == 78
    (sentence,) = caught.value.sentences
    assert sentence.startswith(f"{name}: ")
    assert f"`make resume NAME=x {name}=" in sentence
    assert go_on(**{name: mine})[name] == mine


def test_an_older_run_that_was_started_with_the_defaults_goes_on(go_on, tmp_path):
    """A version before this one wrote down all of these, with what they had turned out to be."""
    defaults = settled(
        resume_module.read({"RUNS_DIR": str(tmp_path)}, resume_module.datetime.now())
    )
    copied(tmp_path, {**defaults, "TRAINER_EPOCHS": "9"})
    found = go_on()
    assert (found["WORKERS"], found["TRAINER_EPOCHS"]) == ("2", "9")


@pytest.mark.parametrize("target", ["../x", "/etc", ".hidden", "gone", "x/.."])
def test_the_newest_run_is_one_of_the_folder_of_runs(go_on, tmp_path, target):
    (tmp_path / "runs/latest").unlink()
    (tmp_path / "runs/latest").symlink_to(target)
    with pytest.raises(EndError, match="RUN_NAME"):
        go_on()


def test_one_command_gives_all_that_an_older_run_has_to_be_given_again(go_on, tmp_path):
    odd = "/it's $HOME/x.py"
    copied(tmp_path, {"WORKERS": "2", "IMAGE": "theirs:1", "SCRIPT": odd})
    with pytest.raises(EndError) as caught:
        go_on(TRAINER_EPOCHS="3", RUNS_DIR=str(tmp_path / "runs"), PATH="/bin")
    (sentence,) = caught.value.sentences
    command = shlex.split(sentence[sentence.index("`make resume") + 1 :].rpartition("`")[0])
    assert command[:3] == ["make", "resume", "NAME=x"]
    assert sorted(one.replace("$$", "$") for one in command[3:]) == sorted(
        ["IMAGE=theirs:1", f"SCRIPT={odd}", "TRAINER_EPOCHS=3", f"RUNS_DIR={tmp_path}/runs"]
    )


def test_what_a_terminal_would_obey_is_not_in_the_command(go_on, tmp_path):
    copied(tmp_path, {"WORKERS": "2", "IMAGE": "theirs\x1b[2J\nrm"})
    with pytest.raises(EndError) as caught:
        go_on()
    assert "\x1b" not in caught.value.sentences[0]
    assert "IMAGE=…`" in caught.value.sentences[0]
