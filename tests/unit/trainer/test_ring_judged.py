"""The exit code for the end of a ring: a lost peer is worth a restart, a wrong program is not."""

import logging

import pytest

from cluster_trainer.collectives.ring.errors import (
    Aborted,
    OtherCall,
    OutOfStep,
    PeerLost,
    Refused,
    RingError,
)
from cluster_trainer.problems import ExitCode
from cluster_trainer.process.exit_code import judge, tell


@pytest.mark.parametrize("kind", [RingError, PeerLost, OutOfStep, Aborted])
def test_a_ring_that_has_ended_is_worth_another_try(kind):
    code, reason = judge(kind("rank 1 was lost: no heartbeat"), 2)
    assert code == ExitCode.PEER_LOST
    assert reason == f"a peer was lost ({kind.__name__}: rank 1 was lost: no heartbeat)"


def test_a_refused_program_ends_all_workers_for_good():
    code, reason = judge(Refused("refused by rank 1: the step fails on a share"), 2)
    assert code == ExitCode.BAD_CONFIGURATION
    assert reason == "refused by rank 1: the step fails on a share"


def test_workers_at_different_calls_are_the_programs_fault(caplog, monkeypatch):
    """Each restart would fail again, and the program's author needs the traceback."""
    error = OtherCall("rank 1 is at predict")
    code, reason = judge(error, 2)
    assert code == ExitCode.BAD_CONFIGURATION
    assert reason == "rank 1 is at predict"
    monkeypatch.setattr(logging.getLogger("trainer"), "propagate", True)
    tell(error, 2)
    assert [record.exc_info[1] for record in caplog.records] == [error]
