"""cluster.env: what was written is read again, whatever it is, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_cluster.settings import names, remembered

KEPT = sorted(name for name in (*names.OWN, *names.passed_on()) if remembered.is_remembered(name))
# Whatever a variable may hold: all but NUL, and bytes that are no UTF-8 as Python shows them.
TEXTS = st.text(
    st.one_of(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
        st.sampled_from('\n\r"\\=#\x85\u2028\udcff\udc80'),
    ),
    min_size=1,
)


@given(st.dictionaries(st.sampled_from(KEPT), TEXTS))
def test_everything_comes_back_as_it_was(environ):
    text = remembered.render(environ).encode(errors="surrogateescape")
    assert remembered.parse(text.decode(errors="surrogateescape")) == environ


@given(st.text())
def test_no_content_is_too_odd_to_read(text):
    assert set(remembered.parse(text)) <= {*KEPT, remembered.SECRET}


@given(TEXTS)
def test_a_secret_is_remembered_by_its_name_alone(secret):
    environ = {"CLUSTER_TOKEN": secret, "PIP_INDEX_URL": secret, "TRAINER_RESUME": "never"}
    text = remembered.render(environ)
    assert text == remembered.render({"CLUSTER_TOKEN": "x"})
    assert remembered.parse(text) == {"CLUSTER_TOKEN": ""}


def test_plain_values_stay_legible():
    environ = {"WORKERS": "2", "TRAINER_MODEL": "my_pkg.net:build", "TRAINER_EPOCHS": "", "X": "y"}
    lines = remembered.render(environ).splitlines()
    assert lines[1:] == ["TRAINER_MODEL=my_pkg.net:build", "WORKERS=2"]


def test_a_file_of_an_earlier_version_is_read():
    text = '# What this run was started with.\nWORKERS=3\nTRAINER_MODEL="odd\nDOCKER_HOST=evil\n'
    assert remembered.parse(text) == {"WORKERS": "3", "TRAINER_MODEL": '"odd'}


def test_settings_that_were_refused_are_forgotten_for_the_earlier_ones(tmp_path):
    assert remembered.remember(tmp_path, {"WORKERS": "1"}) == ""
    first = (tmp_path / remembered.FILE).read_text()
    before = remembered.remember(tmp_path, {"WORKERS": "2"})
    assert before == first
    remembered.forget(tmp_path, before)
    assert remembered.recall(tmp_path) == {"WORKERS": "1"}


def test_the_first_settings_of_a_run_stay_even_if_they_were_refused(tmp_path):
    remembered.forget(tmp_path, remembered.remember(tmp_path, {"WORKERS": "1"}))
    assert remembered.recall(tmp_path) == {"WORKERS": "1"}


@pytest.mark.parametrize("name", ["WORKERS", "WORKER_7_GPUS", "TRAINER_EPOCHS", "LOG_FORMAT"])
def test_what_decides_a_run_is_remembered(name):
    assert remembered.is_remembered(name)
