"""MIN_WORKERS at the gate: a newcomer that is wrong ends alone, whichever worker it is."""

from __future__ import annotations

from dataclasses import replace

from entrypoint.rendezvous.meeting import Fewer
from harness.timing import QUICK

FEWER = Fewer(2, 60.0)
LATE = replace(QUICK, collect_seconds=5.0)
"""Of one that finds something wrong, and waits until all have met it."""


def test_a_new_worker_0_with_another_image_ends_alone(cluster):
    """It accuses those who trained; who is as new as it is hears nothing of that."""
    four = cluster(4)
    stay = [four.start(place, generation=9, fewer=FEWER) for place in (1, 2)]
    stay.append(four.start(3, fewer=FEWER))
    facts = replace(four.facts, image="0.2.0")
    wrong = four.start(0, facts=facts, fewer=FEWER, timing=LATE)
    assert wrong.end().exit_code == 78
    assert "image version of worker-" in str(wrong.end())
    wrong.wait_for("WARNING", "it ends alone, and they wait for another")
    for worker in stay[:2]:
        worker.wait_for("WARNING worker-0 was in no ring with this worker", "image version of")
    right = four.start(0, fewer=FEWER)
    assert [worker.end() for worker in (right, *stay)] == [None] * 4


def test_a_new_worker_with_another_index_at_the_address_of_worker_0_ends_alone(cluster):
    three = cluster(3)
    stay = [three.start(place, generation=9, fewer=FEWER) for place in (1, 2)]
    there = three.moved(worker_2=str(three.member(0).address))
    slow = replace(QUICK, collect_seconds=1.5)  # it finds itself there, too, and sooner
    wrong = three.start(2, spec=there, fewer=FEWER, timing=slow)
    for worker in stay:
        worker.wait_for("WARNING", "WORKER_INDEX of worker-2 at", "sent away, and the others go on")
    assert wrong.end().exit_code == 78
    right = three.start(0, fewer=FEWER)
    assert [worker.end() for worker in (right, *stay)] == [None] * 3
