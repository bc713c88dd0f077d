"""A callback that begins again is as it was given, and what it holds are the same objects."""

from collections import Counter, deque

import numpy as np

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
    """One that tells somebody of each change, as Keras's do."""

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
