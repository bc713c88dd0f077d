"""Every rank gets the sum over all ranks, with the same bits on all ranks and in all runs."""

import functools
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cluster_trainer.collectives.ring.memory import ALIGNMENT
from cluster_trainer.collectives.ring.ring import DTYPES, SMALL_BYTES, Ring
from cluster_trainer.collectives.ring.traffic import Traffic
from harness.rings import on_all, over_tcp, rings

pytestmark = pytest.mark.slow

SIZES = range(2, 9)
sizes = pytest.mark.parametrize("size", SIZES)
few_sizes = pytest.mark.parametrize(
    "size",
    [size if size in (2, 3, 8) else pytest.param(size, marks=pytest.mark.long) for size in SIZES],
)


def summed(made: list[Ring], values: list[np.ndarray], wire: str | None = None) -> list[np.ndarray]:
    return on_all(made, lambda ring: ring.all_reduce(values[ring.rank], wire=wire))


def bits(found: list[np.ndarray]) -> set[bytes]:
    return {total.tobytes() for total in found}


@pytest.fixture(scope="module")
def kept() -> Iterator[dict[int, list[Ring]]]:
    """Rings of each size, shared by many examples."""
    with ExitStack() as stack:
        yield {size: stack.enter_context(rings(size)) for size in SIZES}


@sizes
@pytest.mark.parametrize("count", [0, 1, 2, 7, 1001, 70_001])
def test_whole_numbers_are_summed_exactly(size: int, count: int) -> None:
    values = [np.arange(count, dtype=np.int64) * (rank + 1) - 5 for rank in range(size)]
    with rings(size) as made:
        for total in summed(made, values):
            np.testing.assert_array_equal(total, np.sum(values, axis=0))


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("more", [0, 1])
def test_both_ways_meet_without_a_gap(size: int, more: int) -> None:
    count = SMALL_BYTES // (size - 1) // 8 + more
    values = [np.arange(count, dtype=np.int64) * (rank + 1) for rank in range(size)]
    with rings(size) as made:
        for total in summed(made, values):
            np.testing.assert_array_equal(total, np.sum(values, axis=0))


@pytest.mark.parametrize(("size", "wire", "sent"), [(2, None, 4), (4, None, 6), (2, "bfloat16", 2)])
def test_what_they_send_is_counted(size: int, wire: str | None, sent: float) -> None:
    count = 200_000
    with rings(size) as made:
        summed(made, [np.ones(count, np.float32)] * size, wire)
        for ring in made:
            assert ring.traffic.sent_bytes == pytest.approx(sent * count, rel=0.01)
            assert 0 < ring.traffic.seconds < 60
            assert ring.traffic.exchanges == 1


def test_sums_that_rounding_leaves_alone_are_not_counted() -> None:
    with rings(2) as made:
        summed(made, [np.ones(1000, np.int64)] * 2)
        assert [ring.traffic for ring in made] == [Traffic()] * 2


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3, 8])
def test_large_ones_are_summed_exactly(size: int) -> None:
    values = [np.arange(12_500_001, dtype=np.int64) * (rank + 1) for rank in range(size)]
    with rings(size, over_tcp) as made:
        for total in summed(made, values):
            np.testing.assert_array_equal(total, values[0] * (size * (size + 1) // 2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [7, 70_000])
@pytest.mark.parametrize("size", [2, 3])
def test_every_type_is_summed_in_its_own(size: int, count: int, dtype: np.dtype) -> None:
    values = [(np.arange(count) % 50 + rank).astype(dtype) for rank in range(size)]
    with rings(size) as made:
        for total in summed(made, values):
            assert total.dtype == dtype
            np.testing.assert_array_equal(total, np.sum(values, axis=0, dtype=dtype))


# The largest relative errors, with a margin for numbers that have been rounded up before.
# bfloat16 has 8 significant bits, the first of which is implicit. float32 has 24.
ROUNDING, BFLOAT16_ROUNDING = 2**-24 * 1.001, 2**-8 * 1.02
SMALLEST = 1e-39  # about the rounding error of bfloat16 near the smallest numbers
LARGEST = float(np.float32(1e37))  # the sum of eight is finite


@st.composite
def of_all_ranks(draw: st.DrawFn, size: int) -> list[np.ndarray]:
    """Draw each rank's numbers: few, which go to all ranks as they are, or more, in chunks."""
    few = SMALL_BYTES // (size - 1) // 4
    count = draw(st.one_of(st.integers(0, 64), st.integers(few - 2, few + 64)))
    numbers = arrays.arrays(np.float32, count, elements=st.floats(-LARGEST, LARGEST, width=32))
    return [draw(numbers) for _ in range(size)]


def exactly(values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return NumPy's float64 sums over the ranks, of the values and of their magnitudes."""
    wide = np.array(values, np.float64)
    return wide.sum(axis=0), np.abs(wide).sum(axis=0)


@few_sizes
@given(data=st.data())
@settings(max_examples=8)
def test_the_sum_is_numpys(kept: dict[int, list[Ring]], size: int, data: st.DataObject) -> None:
    values = data.draw(of_all_ranks(size))
    found = summed(kept[size], values)
    assert len(bits(found)) == 1
    exact, most = exactly(values)
    roundings = size - 1  # after each addition
    assert (np.abs(found[0] - exact) <= roundings * ROUNDING * most).all()


@few_sizes
@given(data=st.data())
@settings(max_examples=8)
def test_bfloat16_rounds_each_number_on_its_way(
    kept: dict[int, list[Ring]], size: int, data: st.DataObject
) -> None:
    values = data.draw(of_all_ranks(size))
    found = summed(kept[size], values, "bfloat16")
    assert len(bits(found)) == 1
    exact, most = exactly(values)
    roundings = size  # at most: of each number at first, and after each addition
    assert (np.abs(found[0] - exact) <= roundings * BFLOAT16_ROUNDING * most + SMALLEST).all()


@pytest.mark.parametrize("count", [9, 90_000])
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("wire", [None, "bfloat16"])
def test_all_ranks_and_all_runs_have_the_same_bits(size: int, count: int, wire: str | None) -> None:
    random = np.random.default_rng(0)
    values = [random.standard_normal(count).astype(np.float32) for _ in range(size)]
    found = []
    for _ in range(2):
        with rings(size, over_tcp) as made:
            found += [total for _ in range(3) for total in summed(made, values, wire)]
    assert len(bits(found)) == 1


@pytest.mark.parametrize("count", [8, 80_000])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("wire", [None, "bfloat16"])
def test_what_is_not_finite_stays_so(size: int, count: int, wire: str | None) -> None:
    special = np.array([np.nan, np.inf, -np.inf, np.inf, -0.0, 1.0, 3e38, 1.0], np.float32)
    other = np.array([1.0, 1.0, 1.0, -np.inf, -0.0, np.nan, 3e38, np.inf], np.float32)
    values = [np.resize(special, count)] + [np.resize(other, count)] * (size - 1)
    with rings(size) as made:
        found = summed(made, values, wire)
    with np.errstate(all="ignore"):
        expected = functools.reduce(np.add, values)  # np.sum begins with a 0 that is not negative
    assert len(bits(found)) == 1
    np.testing.assert_array_equal(found[0], expected)
    assert (np.signbit(found[0]) == np.signbit(expected))[~np.isnan(expected)].all()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("wire", [None, "bfloat16"])
def test_nans_of_several_kinds_are_the_same_on_all_ranks(size: int, wire: str | None) -> None:
    values = [np.full(9, 0x7FC00000 + (rank << 16), np.uint32) for rank in range(size)]
    with rings(size) as made:
        found = summed(made, [each.view(np.float32) for each in values], wire)
    assert np.isnan(found[0]).all()
    assert len(bits(found)) == 1


def test_bfloat16_rounds_to_nearest_even() -> None:
    halfway = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF], np.uint32)
    with rings(2) as made:
        found = summed(made, [halfway.view(np.float32), np.zeros(4, np.float32)], "bfloat16")
    expected = [0x3F800000, 0x3F820000, 0x3F810000, 0x3F800000]
    assert found[0].view(np.uint32).tolist() == expected


def test_arguments_are_read_only_and_may_be_in_steps() -> None:
    values = np.arange(200_000, dtype=np.float32)
    values.flags.writeable = False
    with rings(2) as made:
        found = summed(made, [values, values[::-1]])
    assert (found[0] == 199_999).all()
    assert values[7] == 7


def test_a_result_is_the_callers_for_as_long_as_it_refers_to_it() -> None:
    with rings(2) as made:
        first = summed(made, [np.full(5000, 1.0, np.float32)] * 2)
        part = first[0][10:20]
        del first
        for number in range(10):
            summed(made, [np.full(5000, float(number), np.float32)] * 2)
        assert (part == 2).all()


@pytest.mark.parametrize("count", [1, 7, 1000, 70_001])
@pytest.mark.parametrize("wire", [None, "bfloat16"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_result_begins_where_tensorflow_takes_it_without_a_copy(
    size: int, wire: str | None, count: int
) -> None:
    with rings(size) as made:
        for total in summed(made, [np.ones(count, np.float32)] * size, wire):
            assert total.ctypes.data % ALIGNMENT == 0


def test_memory_is_used_again_once_nobody_refers_to_it() -> None:
    with rings(2) as made:
        places = {
            found.ctypes.data
            for _ in range(20)
            for found in summed(made, [np.ones(300_000, np.float32)] * 2)
        }
    assert len(places) <= 4


def test_a_ring_of_one_returns_a_copy() -> None:
    values = np.arange(5, dtype=np.float32)
    with Ring(0, 1, 0) as ring:
        total = ring.all_reduce(values)
        assert (total == values).all()
        assert not np.shares_memory(total, values)
        assert ring.all_gather(b"mine") == [b"mine"]
        assert ring.broadcast(b"held", 0) == b"held"
        ring.barrier()


@pytest.mark.parametrize(
    ("values", "wire", "message"),
    [
        (np.zeros((2, 2), np.float32), None, r"float32 \[2, 2\]: accepted are \[n\] of float32"),
        (np.zeros(2, np.uint8), None, r"uint8 \[2\]: accepted"),
        (np.zeros(2, np.float64), "bfloat16", "wire 'bfloat16' for float64"),
        (np.zeros(2, np.float32), "float8", "wire 'float8' for float32"),
    ],
)
def test_refuses_what_it_cannot_sum(values: np.ndarray, wire: str | None, message: str) -> None:
    with Ring(0, 1, 0) as ring, pytest.raises(ValueError, match=message):
        ring.all_reduce(values, wire=wire)
