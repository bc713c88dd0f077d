"""Names are looked up as long as a thread can be had at all."""

from __future__ import annotations

import queue
import threading

import pytest

from entrypoint.cluster.look_ups import Found, LookUps


def test_a_name_for_which_no_thread_could_be_had_is_looked_up_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more(_: threading.Thread) -> None:
        reason = "can't start new thread"  # as under docker run --pids-limit
        raise RuntimeError(reason)

    found: queue.SimpleQueue[Found] = queue.SimpleQueue()
    look_ups = LookUps()
    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", no_more)
        look_ups.ask("127.0.0.1", 1, found.put)
    assert found.empty()
    look_ups.ask("127.0.0.1", 2, found.put)
    assert [found.get(timeout=5)[0][1] for _ in range(2)] == [("127.0.0.1", 1), ("127.0.0.1", 2)]
