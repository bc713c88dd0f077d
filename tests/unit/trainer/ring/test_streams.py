"""A flow sends only whole numbers that have arrived and were handled."""

from cluster_trainer.collectives.ring.streams import GRAIN, PIECE, UNIT, Flow


def test_only_whole_numbers_are_handled_and_passed_on() -> None:
    handled = []
    place = memoryview(bytearray(3 * GRAIN))
    flow = Flow([place], [place], free=0, handle=lambda *span: handled.append(span))
    assert flow.piece() is None
    flow.arrived(GRAIN + 1)
    piece, more = flow.piece() or (b"", True)
    assert (len(piece), more) == (GRAIN, False)
    flow.arrived(2 * GRAIN - 1)
    flow.sent(GRAIN)
    assert len((flow.piece() or [b""])[0]) == 2 * GRAIN
    assert handled == [(0, 0, GRAIN), (0, GRAIN, 3 * GRAIN)]
    assert GRAIN % UNIT == 0


def test_little_waits_until_there_is_more_or_its_part_is_whole() -> None:
    handled = []
    parts = [memoryview(bytearray(100)), memoryview(b""), memoryview(bytearray(8))]
    flow = Flow([], parts, handle=lambda *span: handled.append(span))
    flow.arrived(96)
    assert handled == []
    flow.arrived(4)
    flow.arrived(8)
    assert handled == [(0, 0, 100), (2, 0, 8)]
    assert flow.room() is None


def test_what_is_sent_is_prepared_once_in_order() -> None:
    prepared = []
    content = memoryview(bytearray(PIECE + 10))
    flow = Flow([content], head=b"head", prepare=lambda *span: prepared.append(span))
    taken = 0
    while piece := flow.piece():
        count = max(len(piece[0]) // 2, 1)
        flow.sent(count)
        taken += count
    assert taken == len(b"head") + len(content)
    assert [first for _, first, _ in prepared[1:]] == [last for _, _, last in prepared[:-1]]
    assert (prepared[0][1], prepared[-1][2]) == (0, len(content))
