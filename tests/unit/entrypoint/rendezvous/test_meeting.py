"""A meeting's text, which one process passes to another."""

import pytest

from entrypoint.rendezvous.outcome import Meeting


@pytest.mark.parametrize(
    "meeting", [Meeting(), Meeting("af03"), Meeting("af03", (0, 2, 17))], ids=lambda one: one.text
)
def test_a_meeting_survives_its_way(meeting: Meeting) -> None:
    assert Meeting.read(meeting.text) == meeting
