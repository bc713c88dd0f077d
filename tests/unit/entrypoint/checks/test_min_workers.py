"""MIN_WORKERS is more than half of the workers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from entrypoint.checks import options
from entrypoint.errors import ConfigurationError

THREE = {"WORKER_HOSTS": "127.0.0.1:2222,127.0.0.2:2222,127.0.0.3:2222", "WORKER_INDEX": "0"}
DEFAULTS = {"regroup_seconds": 5.0, "at_gate_seconds": 300}


def check_min_workers(
    least: int | None, workers: int, *, regroup_seconds: float, at_gate_seconds: int, **more: str
) -> None:
    """Check MIN_WORKERS with these options and no others."""
    given = SimpleNamespace(
        min_workers=least,
        regroup_seconds=regroup_seconds,
        rendezvous_timeout_seconds=at_gate_seconds,
    )
    options.check_min_workers(given, workers, **more)


@pytest.mark.parametrize(
    ("least", "workers"),
    [(None, 1), (None, 9), (1, 1), (2, 2), (2, 3), (3, 3), (3, 4), (3, 5), (501, 1000)],
)
def test_more_than_half_of_the_workers_may_go_on(least: int | None, workers: int) -> None:
    check_min_workers(least, workers, **DEFAULTS)


@pytest.mark.parametrize(
    ("least", "workers", "accepted"),
    [
        (2, 1, "accepted: 1, if there is one worker"),
        (1, 2, "accepted: 2: "),
        (3, 2, "accepted: 2: "),
        (1, 3, "from 2 to 3"),
        (4, 3, "from 2 to 3"),
        (2, 4, "from 3 to 4"),
    ],
)
def test_half_of_them_or_more_than_there_are_are_refused(
    least: int, workers: int, accepted: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_min_workers(least, workers, **DEFAULTS)
    assert f'MIN_WORKERS: received "{least}"' in str(refused.value)
    assert accepted in str(refused.value)


def test_who_goes_on_meets_at_the_gate() -> None:
    check_min_workers(None, 3, regroup_seconds=5, at_gate_seconds=0)
    with pytest.raises(ConfigurationError) as refused:
        check_min_workers(1, 3, regroup_seconds=5, at_gate_seconds=0)
    assert 'RENDEZVOUS_TIMEOUT: received "0"' in str(refused.value)
    assert 'MIN_WORKERS: received "1"' in str(refused.value)


def test_where_nobody_is_gone_on_without_there_need_be_no_gate() -> None:
    check_min_workers(1, 1, regroup_seconds=5, at_gate_seconds=0)
    check_min_workers(3, 3, regroup_seconds=500, at_gate_seconds=0, collectives="tensorflow")


@pytest.mark.parametrize("seconds", [15.5, 1234567.5])
def test_the_wait_for_the_lost_is_over_before_those_give_up_who_noticed_first(
    seconds: float,
) -> None:
    check_min_workers(2, 3, regroup_seconds=15, at_gate_seconds=30)
    with pytest.raises(ConfigurationError) as refused:
        check_min_workers(2, 3, regroup_seconds=seconds, at_gate_seconds=30)
    assert f'REGROUP_SECONDS: received "{seconds}"; accepted: at most half' in str(refused.value)


def test_fewer_workers_are_a_ring() -> None:
    check_min_workers(2, 3, **DEFAULTS, collectives="ring")
    with pytest.raises(ConfigurationError) as refused:
        check_min_workers(2, 3, **DEFAULTS, collectives="TensorFlow")
    assert 'TRAINER_COLLECTIVES: received "TensorFlow"; accepted: auto or ring' in str(
        refused.value
    )


@pytest.mark.parametrize("how", [("true",), ("explain", "true")], ids=lambda how: how[0])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"MIN_WORKERS": "1"}, 'MIN_WORKERS: received "1"; accepted: from 2 to 3'),
        ({"MIN_WORKERS": "2", "REGROUP_SECONDS": "200"}, 'REGROUP_SECONDS: received "200"'),
        (
            {"MIN_WORKERS": "2", "TRAINER_COLLECTIVES": "tensorflow"},
            "TRAINER_COLLECTIVES: received",
        ),
        ({"MIN_WORKERS": "1", "METRICS_PORT": "2222"}, "METRICS_PORT: received"),  # all at once
    ],
    ids=str,
)
def test_a_start_is_refused(run: Callable, how, settings: dict[str, str], says: str) -> None:
    ended = run(*how, **THREE, **settings, RENDEZVOUS_TIMEOUT="300")
    assert ended.code == 78
    assert says in ended.stderr
    assert settings["MIN_WORKERS"] != "1" or 'MIN_WORKERS: received "1"' in ended.stderr


@pytest.mark.parametrize("least", [None, "3"])
def test_seconds_that_change_nothing_are_warned_of(run: Callable, least: str | None) -> None:
    given = {} if least is None else {"MIN_WORKERS": least}
    ended = run("true", **THREE, **given, REGROUP_SECONDS="7", RENDEZVOUS_TIMEOUT="0")
    assert ended.code == 0
    warns = "REGROUP_SECONDS has no effect without MIN_WORKERS" in ended.stderr
    assert warns is (least is None)
