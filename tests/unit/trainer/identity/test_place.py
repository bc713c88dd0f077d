"""The place of a call in a script: its line, its callers' lines, and its turn in a loop."""

import gc
import inspect
from enum import Enum
from functools import partial
from weakref import ref

import numpy as np
import pytest

from cluster_trainer.fits.identity.place import place_of


def here():
    return place_of(inspect.currentframe().f_back)


def train(seed, folder="a", model=None):  # noqa: ARG001
    return here()


def names(found):
    return {name.split()[0] for name in found}


def test_it_is_the_calling_line_and_its_callers():
    place = train(1)
    assert [line.function for line in place.lines[:2]] == [
        "train",
        "test_it_is_the_calling_line_and_its_callers",
    ]
    assert place.lines[0].text == "return here()"
    assert place.shown == "train(): return here()"
    assert place.is_in_source()


def test_parameters_are_told_apart_and_not_shown():
    folder = "secret"
    first, second = (train(seed, folder) for seed in (1, 2))
    assert first.numbers["seed of frame 0"] != second.numbers["seed of frame 0"]
    assert names(first.words) >= {"folder"}
    assert "secret" not in repr((first.numbers, first.words))


def test_loop_variables_count_and_other_variables_do_not():
    other = object()
    for fold, (name, number) in enumerate([("a", np.int64(1))]):
        volatile = id(other)
        place = here()
        assert volatile
        assert name
        assert number + fold
    assert {"fold", "name", "number"} <= names(place.numbers)
    assert "volatile" not in names(place.numbers) | names(place.words)


def test_a_loop_that_is_over_does_not_count():
    for volatile in range(3):
        assert volatile >= 0
    assert "volatile" not in names(here().numbers)


def test_each_call_of_one_text_is_another():
    first, second = (
        here(),
        here(),
    )
    assert not first.has_lines_of(second)


def test_a_call_of_several_lines_is_told_by_all_of_them():
    def call(*given):
        return here() if given else None

    first = call(
        1,
    )
    second = call(
        2,
    )
    assert not first.has_lines_of(second)
    assert first.is_in_source()


class Thing:
    def __init__(self, **own):
        vars(self).update(own)


@pytest.mark.parametrize("kind", [dict, Thing, lambda **own: list(own.values())])
def test_a_loop_over_plain_things_says_which_call_it_is(kind):
    places = [here() for one in (kind(seed=1), kind(seed=2)) if one]
    assert places[0].numbers != places[1].numbers
    assert all(one.is_certain for one in places)


def weak():
    return 1


def strong():
    return 2


def made(strength):
    def augment():
        return strength

    return augment


FUNCTIONS = {
    "functions": (weak, strong),
    "classes": (Thing, dict),
    "lambdas": (lambda: 1, lambda: 2),
    "functions within another": (made(1), made(2)),
    "parts of functions": (partial(made, 1), partial(made, 2)),
    "dictionaries": ({"epochs": 2, "make": weak}, {"epochs": 2, "make": strong}),
    "objects": (Thing(epochs=2, make=weak), Thing(epochs=2, make=strong)),
    "objects of two classes": (
        Thing(a=1),
        type("Another", (Thing,), {"__module__": __name__})(a=1),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_loop_over_functions_says_which_call_it_is(name):
    places = [here() for one in FUNCTIONS[name] if one]
    assert places[0].functions != places[1].functions
    assert all(one.is_certain for one in places)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_start_tells_the_same_functions_alike(name):
    first, second = ([here() for one in FUNCTIONS[name] if one] for _ in range(2))
    assert [one.functions for one in first] == [one.functions for one in second]


def test_functions_that_are_parameters_are_told_apart():
    first, second = [*map(partial(train, 1), (weak, strong))]
    assert first.functions != second.functions
    first, second = [*map(partial(train, 1), (made(1), made(2)))]
    assert first.functions == second.functions
    assert first.held != second.held


def test_a_counter_that_a_function_keeps_does_not_count():
    def counting():
        count, seen = 0, []

        def note():
            nonlocal count
            count += 1
            seen.append(count)

        return note

    note = counting()
    before = train(1, note)
    note()
    assert train(1, note).values == before.values


@pytest.mark.parametrize(
    "call",
    [
        lambda things: [*map(one_of, things)],
        lambda things: list(map(one_of, things)),
        lambda things: [place for place in map(one_of, things) if place],
        lambda things: sorted(things, key=lambda one: found.append(one_of(one)) or 1) and found,
    ],
    ids=["a star", "list", "a loop", "sorted"],
)
def test_calls_by_an_iterator_are_known_by_their_parameters_alone(call):
    found.clear()
    assert all(one.is_certain for one in call([1, 2]))
    found.clear()
    assert not any(one.is_certain for one in call([object(), object()]))


found = []


def one_of(thing):
    assert thing
    return here()


def test_a_call_that_does_not_read_an_iterator_is_known_by_its_line():
    class Base:
        def train(self):
            return here()

    class Own(Base):
        def train(self):
            return super().train()

    assert Own().train().is_certain


def test_a_loop_over_anything_else_does_not_nor_does_a_while_loop():
    for anything in (object(), iter([1])):
        assert anything
        assert not here().is_certain
    waiting = [1]
    while waiting:
        waiting.pop()
        assert not here().is_certain
    assert here().is_certain


@pytest.mark.parametrize("volatile", ["/tmp/x", "run-20261125", 1.7e9])
def test_a_parameter_that_is_another_at_each_start_does_not_count(volatile):
    assert "folder" not in names(train(1, volatile).words)


@pytest.mark.parametrize("volatile", ["/tmp/x", "run-20261125", 1.7e9])
@pytest.mark.parametrize("holding", [lambda one: {"a": "b", "c": [one]}, lambda one: ["b", one]])
def test_nor_does_it_within_another(volatile, holding):
    places = [train(1, holding(one)) for one in (volatile, "d")]
    assert places[0].words == train(1, holding("/tmp/y")).words
    assert places[0].words != places[1].words


class Kind(Enum):
    FLIP, TURN = range(2)


@pytest.mark.parametrize(("first", "second"), [Kind, ({"a", "b"}, {"a", "c"})])
def test_a_choice_and_a_set_count(first, second):
    places = [train(1, one) for one in (first, second)]
    assert names(places[0].words) >= {"folder"}
    assert places[0].words != places[1].words


def test_a_function_keeps_nothing_alive():
    def fit(number):
        held = Thing(number=number)
        known, place = ref(held), here()
        del held
        gc.collect()
        return known() is None, place

    assert fit(1)[0]


def test_a_comprehension_is_a_loop():
    found = [train(one) for one in range(2)]
    assert found[0].numbers != found[1].numbers
    assert found[0].has_lines_of(found[1])


def test_code_without_a_source_has_a_place_all_the_same():
    known = {"here": here}
    exec("def fit(times):\n    return here()", known)
    place = known["fit"](3)
    assert place.lines[0].text == ""
    assert place.is_in_source()


def test_no_frame_of_python_is_a_place():
    assert place_of(None).shown == "no line of Python"
