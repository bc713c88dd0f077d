"""A callback that is restored is as it was given, and holds the same objects."""

from collections import Counter, deque

import numpy as np
import pytest

from cluster_trainer.callbacks import as_given
from cluster_trainer.callbacks.as_given import LARGEST_BYTES, MOST_ELEMENTS, AsGiven


class Callback:
    def __init__(self, **given):
        vars(self).update(given)


def test_attributes_that_came_later_are_gone_and_others_are_put_back() -> None:
    one = Callback(best=3, model=None)
    given = AsGiven([one])
    one.best, one.other = 5, object()
    del one.model
    given.restore()
    assert vars(one) == {"best": 3, "model": None}


def test_what_a_script_holds_is_the_same_object_with_what_was_in_it() -> None:
    seen, counts, last = ["before"], Counter("aab"), deque([1], maxlen=2)
    names, totals, inner = {"a"}, np.arange(3.0), {"epochs": [1]}
    one = Callback(seen=seen, counts=counts, last=last, names=names, totals=totals, more=(inner,))
    given = AsGiven([one])
    for _ in range(2):  # one loss after the other
        seen += ["after"]
        counts.update("bc")
        last.extend([2, 3])
        names.add("b")
        totals += 1
        inner["epochs"] += [2]
        inner["more"] = 1
        one.seen = []
        given.restore()
        assert one.seen is seen == ["before"]
        assert counts == {"a": 2, "b": 1}
        assert last == deque([1])
        assert last.maxlen == 2
        assert names == {"a"}
        assert totals.tolist() == [0, 1, 2]
        assert inner == {"epochs": [1]}


def test_two_that_share_a_list_or_hold_each_other_are_put_back_once() -> None:
    shared: list[object] = [1]
    shared.append(shared)
    first, second = Callback(seen=shared), Callback(seen=shared)
    given = AsGiven([first, second])
    shared.append(2)
    given.restore()
    assert len(shared) == 2
    assert first.seen is second.seen is shared[1]


def test_data_are_not_copied() -> None:
    data = np.zeros(LARGEST_BYTES + 1, np.uint8)
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    one = Callback(data=data, read_only=read_only)
    given = AsGiven([one])
    one.data = one.read_only = None
    given.restore()
    assert one.data is data
    assert one.read_only is read_only


class OwnList(list):
    """A list that reports each change, like Keras's own."""

    def clear(self):
        raise AssertionError("it was changed")


def test_a_container_of_another_class_is_left_as_it_is() -> None:
    one = Callback(layers=OwnList([1]))
    AsGiven([one]).restore()
    assert one.layers == [1]


def test_many_elements_are_data_too() -> None:
    rows = [[0]] * (MOST_ELEMENTS + 1)
    one = Callback(rows=rows, few=[1])
    given = AsGiven([one])
    rows[0].append(1)
    rows.append([2])
    one.few.append(2)
    given.restore()
    assert one.rows is rows
    assert len(rows) == MOST_ELEMENTS + 2
    assert one.few == [1]


def test_so_are_those_of_a_tuple() -> None:
    rows = tuple([0] for _ in range(MOST_ELEMENTS + 1))
    given = AsGiven([Callback(rows=rows)])
    rows[0].append(1)
    given.restore()
    assert rows[0] == [0, 1]


class Counted(tuple[object, ...]):
    """A tuple that counts all iterations."""

    __slots__ = ()
    times = 0

    def __iter__(self):
        Counted.times += 1
        return super().__iter__()


def test_a_tuple_that_many_hold_is_gone_through_once() -> None:
    inner: list[int] = []
    pair: object = inner
    for _ in range(10):
        pair = Counted((pair, pair))
    given = AsGiven([Callback(pair=pair)])
    inner.append(1)
    given.restore()
    assert inner == []
    assert Counted.times == 10


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(as_given.log, "warning", lambda text, *_: said.append(text))
    return said


def test_of_many_arrays_the_smallest_are_copied(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    """The limit is for all callbacks together. A list of pictures may be as large as the memory."""
    monkeypatch.setattr(as_given, "MOST_BYTES", 2000)
    pictures = [np.zeros(100, np.uint8) for _ in range(30)]
    first, second = Callback(pictures=pictures), Callback(counts=np.zeros(3))
    given = AsGiven([first, second])
    for one in [*pictures, second.counts]:
        one[...] = 1
    pictures.append(pictures[0])
    given.restore()
    assert second.counts.tolist() == [0, 0, 0]
    assert len(pictures) == 30
    assert 0 < sum(not one.any() for one in pictures) < 20
    assert len(warnings) == 1


def test_many_lists_are_not_all_copied_either(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(as_given, "MOST_BYTES", 2000)
    rows, seen = [[0] * 10 for _ in range(100)], []
    given = AsGiven([Callback(rows=rows), Callback(seen=seen)])
    for row in rows:
        row.append(1)
    seen.append(1)
    given.restore()
    assert seen == []
    assert 0 < sum(len(row) == 10 for row in rows) < 20
    assert len(warnings) == 1


def test_what_is_copied_whole_is_put_back_without_a_word(warnings: list[str]) -> None:
    AsGiven([Callback(seen=[1], totals=np.zeros(3))]).restore()
    assert warnings == []


def test_an_array_that_has_another_shape_since_or_may_not_be_written_is_left() -> None:
    larger, locked = np.zeros(2), np.zeros(2)
    one = Callback(larger=larger, locked=locked, few=[])
    given = AsGiven([one])
    larger.resize(3, refcheck=False)
    locked.flags.writeable = False
    one.few.append(1)
    given.restore()
    assert one.few == []
    assert larger.shape == (3,)
