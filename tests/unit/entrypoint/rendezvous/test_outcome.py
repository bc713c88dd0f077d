"""The lines that name missing workers stay short."""

from __future__ import annotations

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec, Member, Task
from entrypoint.rendezvous.outcome import Meeting, released_line, waiting_line


def members(count):
    return [Member(Task("worker", index), Address("h", index + 1)) for index in range(count)]


def test_members_with_the_same_reason_share_it():
    one, two, three = members(3)
    line = waiting_line([(one, "refused"), (two, "silent"), (three, "refused")], 4, 12.3)
    for fact in ("3 of 4 workers", "12 s"):
        assert fact in line
    assert line.endswith("worker-0 at h:1, worker-2 at h:3: refused; worker-1 at h:2: silent")


def test_ten_are_named_and_the_others_are_counted():
    line = waiting_line([(member, "refused") for member in members(999)], 1000, 0.0)
    assert line.count("worker-") == 10
    assert line.endswith("worker-9 at h:10: refused; and 989 more")


def test_all_without_whom_the_others_go_on_are_counted():
    spec = ClusterSpec(tuple(members(31)))
    line = released_line(Meeting("af03", tuple(range(16))), spec, 5.0)
    assert "16 of 31 workers are here" in line
    assert line.count("worker-") == 5
    assert " and 10 more" in line
