"""The mutants that scripts/mutants makes and chooses, and the tests that it runs."""

import textwrap

import pytest

from scripts.mutants.choice import TimedTest, read, within
from scripts.mutants.sites import Kind, changed, compiles, in_random_order, mutants_of

SOURCE = textwrap.dedent('''
    """Not 1 or 2."""
    import logging
    LIMIT: "int" = 3  # é: positions are those of bytes

    def between(low: "a", high) -> "b":
        """Neither this."""
        logging.info("word", low == high)
        if check(low, "a sentence stays"):
            note(low)
        if (low) < high and high is not None or low:
            raise ValueError(f"{low + 1}", 4)
        return high - low
''').encode()


def made(source: bytes, kind: Kind) -> list[str]:
    """Return the changed lines of all mutants of a kind."""
    before = source.decode().splitlines()
    texts = [changed(source, one) for one in mutants_of("a.py", source) if one.kind is kind]
    return [
        new.strip()
        for text in texts
        for old, new in zip(before, text.decode().splitlines(), strict=True)
        if new != old
    ]


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        (Kind.CONSTANT, ['LIMIT: "int" = 4  # é: positions are those of bytes']),
        (Kind.CONDITION, [
            'if (not (check(low, "a sentence stays"))):',
            "if (not ((low) < high and high is not None or low)):",
        ]),
        (Kind.CALL, ["None"]),
        (Kind.COMPARISON, [
            "if (low) <= high and high is not None or low:",
            "if (low) < high and high is None or low:",
        ]),
        (Kind.LOGIC, [
            "if (low) < high or high is not None or low:",
            "if (low) < high and high is not None and low:",
        ]),
        (Kind.RETURN, ["return None"]),
        (Kind.SIGN, ["return high + low"]),
    ],
)  # fmt: skip
def test_one_place_is_changed_and_no_message(kind, lines):
    assert sorted(made(SOURCE, kind)) == sorted(lines)


def test_all_of_them_compile():
    assert all(compiles(changed(SOURCE, one)) for one in mutants_of("a.py", SOURCE))


def test_what_runs_at_an_import_is_told_from_what_a_call_runs():
    by_line = {one.line: one.at_import for one in mutants_of("a.py", SOURCE)}
    assert by_line.pop(4)
    assert not any(by_line.values())


def test_other_code_changes_nothing_of_the_order():
    before = mutants_of("a.py", SOURCE)
    after = mutants_of("a.py", b"MORE = 1\n" + SOURCE)
    names = [one.name for one in in_random_order(before, seed=1) if one.place]
    assert names == [one.name for one in in_random_order(after, seed=1) if one.place]
    assert names != [one.name for one in in_random_order(before, seed=2) if one.place]


def test_the_first_of_the_order_are_of_each_kind():
    first = in_random_order(mutants_of("a.py", SOURCE), seed=1)[: len(Kind)]
    assert {one.kind for one in first} == set(Kind)


@pytest.fixture
def notes(tmp_path):
    """The notes of two test files. The last test fails, and the first file's fixture is shared."""
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "ends-1").write_text(
        "3.0 passed t/a.py::x\n0.5 passed t/a.py::x\n4.0 passed t/a.py::y\n1.0 passed t/b.py::z\n"
        "0.1 passed t/b.py::fails\n0.1 failed t/b.py::fails\n"
    )
    lines = ">\n@a.py\n4\n>t/b.py::z\n@a.py\n9\n11\n>t/b.py::fails\n@a.py\n13\n@b.py\n13\n"
    (folder / "lines-1").write_text(lines)
    (folder / "lines-2").write_text(">t/a.py\n@a.py\n11\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "tests"),
    [
        (9, ["t/b.py::z"]),
        (11, ["t/b.py::z", "t/a.py::x", "t/a.py::y"]),  # cheap files first, each file together
        (13, []),
        (4, ["t/b.py::z", "t/a.py::x", "t/a.py::y"]),  # all tests that run any line of the module
    ],
)
def test_tests_that_pass_and_run_the_line_are_asked(notes, line, tests):
    mutants = mutants_of("a.py", SOURCE)
    mutant = next(one for one in mutants if one.line == line)
    assert [test.name for test in read(notes, mutants).of(mutant)] == tests


def test_no_more_is_asked_than_the_time_allows_but_for_the_first_test():
    tests = [TimedTest("a", 2.0), TimedTest("b", 3.0), TimedTest("c", 1.0)]
    assert within(tests, 5.0) == tests[:2]
    assert within(tests, 1.0) == tests[:1]
