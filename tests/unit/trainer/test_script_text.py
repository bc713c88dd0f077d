"""The differences between the code of several workers."""

import sys
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from cluster_trainer.same_code import script_text
from cluster_trainer.same_code.script_text import NOT_THERE, PACKAGE, SHOWN, code, differences

NAMES = ["worker-0", "worker-1", "worker-2"]
CODE = st.dictionaries(
    st.tuples(st.sampled_from(["file", "package", "setting"]), st.sampled_from("abc")).map(
        " ".join
    ),
    st.sampled_from(["1", "2"]),
)


@given(CODE)
def test_equal_code_has_no_differences(one):
    assert differences([one, one, one], NAMES) == []


@given(CODE, CODE)
def test_only_workers_with_another_file_package_or_setting_are_named(first, other):
    told = differences([first, first, other], NAMES)
    others = {name for name in {*first, *other} if not name.startswith("file")}
    files = {name for name in first.keys() & other.keys() if name.startswith("file")}
    differs = any(first.get(name) != other.get(name) for name in others | files)
    assert [one.partition(":")[0] for one in told] == ["worker-2"] * differs


def test_both_versions_of_a_package_are_told():
    (told,) = differences(
        [{"package numpy": "2"}, {"package numpy": "1", "package x": "3"}], NAMES[:2]
    )
    assert "numpy 1 (worker-0: 2)" in told
    assert f"x 3 (worker-0: {NOT_THERE[PACKAGE]})" in told


def test_many_differences_are_counted():
    first, other = ({f"file {n}": version for n in range(SHOWN + 3)} for version in "12")
    (told,) = differences([first, other], NAMES[:2])
    assert "and 3 more" in told


def test_installed_packages_are_found():
    assert code({})["package hypothesis"]


def test_a_file_that_cannot_be_read_is_left_out(monkeypatch, tmp_path):
    script, gone = tmp_path / "task.py", ModuleType("gone")
    script.touch()
    gone.__file__ = str(tmp_path / "gone.py")
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setitem(sys.modules, "gone", gone)
    uncached = script_text._read_texts.__wrapped__  # noqa: SLF001
    monkeypatch.setattr(script_text, "_read_texts", uncached)
    assert [name for name in code({}) if name.startswith("file ")] == ["file task.py"]
