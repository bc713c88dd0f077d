"""cluster.json gives back the settings that were written, and nothing else."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_cluster.messages import EndError
from local_cluster.settings import names, run_record
from local_cluster.settings.given_variables import User

ME = User(str(os.getuid()), str(os.getgid()))
KEPT = sorted(name for name in (*names.OWN, *names.passed_on()) if run_record.is_remembered(name))
# Any text that a variable can hold: no NUL; bytes that are not UTF-8 are surrogate escapes.
TEXTS = st.text(
    st.one_of(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
        st.sampled_from('\n\r"\\=#\x85\u2028\udcff\udc80'),
    ),
    min_size=1,
)


def as_content(found):
    return json.dumps(found).encode()


@given(st.dictionaries(st.sampled_from(KEPT), TEXTS))
def test_everything_comes_back_as_it_was(environ):
    assert run_record.parse(run_record.render(run_record.decided(environ))) == environ


ODD = (
    st.none() | st.integers() | st.text() | st.lists(st.text()) | st.dictionaries(st.text(), TEXTS)
)


@given(st.binary() | (ODD | ODD.map(lambda one: {"settings": one})).map(as_content))
def test_no_content_is_too_odd_to_read(content):
    assert set(run_record.parse(content)) <= {*KEPT, run_record.SECRET}


@given(TEXTS)
def test_a_secret_is_remembered_by_its_name_alone(secret):
    environ = {"CLUSTER_TOKEN": secret, "PIP_INDEX_URL": secret, "TRAINER_RESUME": "never"}
    settings = run_record.decided(environ)
    assert settings == run_record.decided({"CLUSTER_TOKEN": "x"}) == {"CLUSTER_TOKEN": ""}
    assert run_record.parse(run_record.render(settings)) == settings


def test_only_what_decides_a_run_and_is_given_is_written():
    environ = {"WORKERS": "2", "TRAINER_MODEL": "my_pkg.net:build", "TRAINER_EPOCHS": "", "X": "y"}
    kept = {"TRAINER_MODEL": "my_pkg.net:build", "WORKERS": "2"}
    assert run_record.decided(environ) == kept


def test_what_is_none_of_a_run_is_left_out():
    settings = {"WORKERS": "3", "DOCKER_HOST": "evil", "TRAINER_EPOCHS": 7}
    assert run_record.parse(run_record.render(settings)) == {"WORKERS": "3"}


@pytest.fixture
def record(tmp_path):
    (tmp_path / "runs/x").mkdir(parents=True)
    return run_record.record_of(tmp_path / "runs", "x", {"XDG_STATE_HOME": str(tmp_path / "state")})


def test_it_is_kept_where_no_container_writes_and_copied_to_read(record, tmp_path):
    record.remember({"WORKERS": "1"}, ME)
    assert tmp_path / "state" in record.kept.parents
    copy = json.loads((tmp_path / "runs/x" / run_record.FILE).read_text())
    assert str(record.kept) in copy["about"]
    assert copy["settings"] == json.loads(record.kept.read_text())["settings"] == {"WORKERS": "1"}
    record.folder.replace(run_record.FILE, run_record.render({"WORKERS": "8"}))
    assert run_record.parse(record.text()) == {"WORKERS": "1"}


def test_settings_that_were_refused_are_forgotten_for_the_earlier_ones(record):
    record.remember({"WORKERS": "1"}, ME)
    before = record.text()
    record.remember({"WORKERS": "2"}, ME)
    record.forget(before, ME)
    assert run_record.parse(record.text()) == run_record.parse(record.copy()) == {"WORKERS": "1"}


def test_a_link_in_the_place_of_the_copy_is_replaced_and_not_followed(record, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in (run_record.FILE, f".new-{run_record.FILE}"):
        (tmp_path / "runs/x" / name).symlink_to(mine)
    record.remember({"WORKERS": "1"}, ME)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "runs/x" / run_record.FILE).is_symlink()


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"XDG_STATE_HOME": "/s"}, "/s/cluster-trainer"),
        ({"XDG_STATE_HOME": "relative"}, "/h/.local/state/cluster-trainer"),
        ({}, "/h/.local/state/cluster-trainer"),
    ],
)
def test_it_lies_where_the_users_programs_keep_such_things(monkeypatch, environ, place):
    monkeypatch.setenv("HOME", "/h")
    assert str(run_record.state_folder(environ)) == place


@pytest.mark.parametrize("name", ["WORKERS", "WORKER_7_GPUS", "TRAINER_EPOCHS", "LOG_FORMAT"])
def test_what_decides_a_run_is_remembered(name):
    assert run_record.is_remembered(name)


def test_a_record_that_cannot_be_read_is_named(record):
    record.kept.mkdir(parents=True)
    with pytest.raises(EndError) as caught:
        record.text()
    assert caught.value.code == 78
    assert str(record.kept) in caught.value.sentences[0]


def test_without_a_home_it_does_not_lie_in_the_working_directory(monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as without a home
    with pytest.raises(EndError) as caught:
        run_record.state_folder({"XDG_STATE_HOME": "state"})
    assert caught.value.code == 78
    assert caught.value.sentences[0].startswith('XDG_STATE_HOME: received "state"')
    assert run_record.state_folder({"XDG_STATE_HOME": "/s"}).parent.name == "s"
