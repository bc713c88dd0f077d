"""Look-ups of names when no more threads can be started."""

from __future__ import annotations

import queue
import signal
import socket
import threading

import pytest

from entrypoint.cluster.look_ups import Found, LookUps, NoThreadError


def no_more(_: threading.Thread) -> None:
    reason = "can't start new thread"  # as under docker run --pids-limit
    raise RuntimeError(reason)


def test_a_name_for_which_no_thread_can_be_had_is_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: queue.SimpleQueue[Found] = queue.SimpleQueue()
    look_ups = LookUps()
    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", no_more)
        look_ups.ask("127.0.0.1", 1, found.put)
    assert isinstance(found.get(timeout=5), NoThreadError)
    look_ups.ask("127.0.0.1", 2, found.put)
    assert found.get(timeout=5)[0][1] == ("127.0.0.1", 2)


def test_a_thread_that_runs_takes_the_names_for_which_no_more_can_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: queue.SimpleQueue[Found] = queue.SimpleQueue()
    looking, go_on, ask = threading.Event(), threading.Event(), socket.getaddrinfo

    def slowly(*arguments: object, **options: object) -> object:
        looking.set()
        go_on.wait(5)
        return ask(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    look_ups = LookUps()
    look_ups.ask("127.0.0.1", 1, found.put)
    assert looking.wait(5)
    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", no_more)
        look_ups.ask("127.0.0.1", 2, found.put)
    go_on.set()
    assert [found.get(timeout=5)[0][1] for _ in range(2)] == [("127.0.0.1", 1), ("127.0.0.1", 2)]


def test_a_lookup_takes_no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    masks: queue.SimpleQueue[set[signal.Signals]] = queue.SimpleQueue()

    def look(*_: object, **__: object) -> list[object]:
        masks.put(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    LookUps().ask("a", 1, lambda _: None)
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD} <= masks.get(timeout=5)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
