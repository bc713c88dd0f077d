"""The kept fit from which a call of `fit` resumes."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_trainer.fits.identity.fit_matching import Call, Choice, Kept, choose, read, write
from cluster_trainer.fits.identity.place import Line, Place


def fit(model, x):
    model.fit(x)


HERE = Line(__file__, "fit", "model.fit(x)")
GONE = Line(__file__, "<module>", "a line that " + "is not in this file")


def call(*lines, numbers=None, words=None, is_certain=True, **more):
    place = Place(lines or (HERE,), numbers or {}, words or {}, is_certain)
    return Call(place, **more)


def weights(bias, scale=0.5):
    """Return the summary of a random kernel and of a bias."""
    return [[12, scale, -scale, scale / 10, scale / 3], [4, bias, bias, bias, abs(bias) / 2]]


FRESH, REDRAWN, TRAINED = weights(0.0), weights(0.0, 0.4), weights(0.3)


def test_a_call_from_the_same_line_as_often_is_the_fit():
    kept = [Kept(1, call()), Kept(2, call(same=1, time=1, order=1))]
    assert choose(call(), kept) == Choice(1)
    assert choose(call(same=1, time=1, order=1), kept) == Choice(2)


def test_another_line_is_another_fit():
    other = Line(__file__, "<module>", "def test_another_line_is_another_fit():")
    assert choose(call(), [Kept(1, call(other))]) is None


def test_the_callers_lines_count():
    first, second = (Line("train.py", "main", f"train({name})") for name in "ab")
    assert choose(call(HERE, second), [Kept(1, call(HERE, first))]) is None


def test_a_loop_variable_of_another_value_is_another_fit():
    kept = [Kept(1, call(numbers={"fold of frame 0": "a"}))]
    assert choose(call(numbers={"fold of frame 0": "b"}), kept) is None


def test_another_function_is_another_fit_unless_it_was_not_recorded():
    def of(name):
        return replace(call(), place=replace(call().place, functions=name))

    kept = [Kept(1, of({"make of frame 0": "a"}))]
    assert choose(of({"make of frame 0": "b"}), kept) is None
    assert choose(of({"make of frame 0": "a"}), kept) == Choice(1)
    assert choose(of({"make of frame 0": "a"}), [Kept(1, of(None))]) == Choice(1)


def test_what_a_parameters_function_holds_is_doubtful():
    def of(held):
        return replace(call(), place=replace(call().place, held={"make of frame 0": held}))

    found = choose(of("b"), [Kept(1, of("a"))])
    assert found == Choice(1, ("what the function make holds",))


def test_the_weights_at_the_beginning_tell_one_that_was_called_as_often():
    kept = [Kept(1, call(began=FRESH)), Kept(2, call(began=TRAINED, same=1, time=1))]
    assert choose(call(began=TRAINED, same=2, time=2), kept) == Choice(2)


@pytest.mark.parametrize(
    ("began", "is_doubtful"), [(FRESH, False), (REDRAWN, True), (TRAINED, True), (None, True)]
)
def test_where_the_place_does_not_say_which_call_it_is_the_weights_have_to(began, is_doubtful):
    """As in a `while` loop. Elsewhere, a script may load its own best weights before it resumes."""
    kept = [Kept(1, call(began=FRESH, is_certain=False))]
    found = choose(call(began=began, is_certain=False), kept)
    assert found is not None
    assert bool(found.doubts) == is_doubtful
    assert choose(call(began=TRAINED), [Kept(1, call(began=FRESH))]) == Choice(1)


def test_a_fit_with_the_same_weights_comes_before_one_that_is_doubtful():
    kept = [
        Kept(1, call(began=FRESH, is_certain=False)),
        Kept(2, call(began=TRAINED, is_certain=False, same=1, time=1)),
    ]
    assert choose(call(began=TRAINED, is_certain=False), kept) == Choice(2)


def test_a_fit_whose_call_is_not_known_is_taken_by_its_number():
    assert choose(call(order=1), [], unnoted=[1, 2]) == Choice(2)
    assert choose(call(order=2), [], unnoted=[1, 2]) is None


def test_a_parameter_that_is_text_may_differ_and_is_doubtful():
    kept = [Kept(1, call(words={"folder of frame 0": "a"}))]
    found = choose(call(words={"folder of frame 0": "b"}), kept)
    assert found is not None
    assert (found.number, "folder" in found.doubts[0]) == (1, True)


def test_a_line_that_was_edited_is_still_the_fit_that_was_called_as_early():
    kept = [Kept(1, call(GONE)), Kept(2, call(GONE, order=1))]
    found = choose(call(order=1), kept)
    assert found is not None
    assert (found.number, bool(found.doubts)) == (2, True)


texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)
lines = st.builds(Line, texts, texts, texts)
digests = st.dictionaries(texts, texts, max_size=2)
calls = st.builds(
    Call,
    place=st.builds(Place, st.lists(lines, max_size=3).map(tuple), digests, digests),
    time=st.integers(0, 9),
    same=st.integers(0, 9),
    order=st.integers(0, 9),
    seed=st.none() | st.integers(0, 9),
    began=st.none() | st.just(FRESH),
    arguments=texts,
    texts=digests,
)


@given(one=calls)
def test_what_is_written_is_read_as_it_was(one, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    write(one, folder)
    assert read(folder) == one


@given(kept=st.lists(calls, max_size=4), mine=calls)
def test_what_is_chosen_is_one_that_is_kept(kept, mine):
    numbered = [Kept(number, one) for number, one in enumerate(kept, 1)]
    found = choose(mine, numbered)
    assert found is None or found.number in {one.number for one in numbered}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"place": 1}', b"\xff"])
def test_a_file_that_cannot_be_read_is_no_fit(tmp_path, content):
    (tmp_path / "call.json").write_bytes(content)
    assert read(tmp_path) is None


def test_a_file_of_a_later_version_is_no_fit(tmp_path):
    (tmp_path / "call.json").write_text(json.dumps(asdict(call()) | {"more": 1}))
    assert read(tmp_path) is None
