"""Where in a script a call is: its line, its callers' lines, and which call of a loop."""

import inspect

import numpy as np

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
