"""Whichever workers are lost, and whenever: all meet again and form a ring."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from entrypoint.rendezvous.outcome import ContradictionError, PeersMissingError
from harness.play import Play, check_circle, until

pytestmark = pytest.mark.slow

LOST = [
    (count, lost)
    for count in (2, 3, 4)
    for size in (1, 2)
    for lost in itertools.combinations(range(count), size)
    if size < count
]
DELAYS = (0.0, 0.005, 0.012, 0.02, 5.0)
"""Seconds from the workers' ask to a loss: during a meeting, and after it."""


@pytest.mark.parametrize(
    "delay",
    [
        one if one in (0.0, 0.012, 5.0) else pytest.param(one, marks=pytest.mark.long)
        for one in DELAYS
    ],
)
@pytest.mark.parametrize("asks_again", [False, True], ids=["before any ring", "after a ring"])
@pytest.mark.parametrize(("count", "lost"), LOST, ids=str)
async def test_those_that_stay_are_a_ring_with_those_that_replace_the_lost(
    count, lost, asks_again, delay
):
    play = Play(count)
    await play.all_run()
    before = (await play.ring())[0].generation if asks_again else 0
    for one in play.players:
        one.ask()
    await asyncio.sleep(delay)
    await play.lose(*lost)
    stay = [place for place in range(count) if place not in lost]
    asked = {place: play.players[place].ask() for place in stay}
    await asyncio.sleep(30)
    await asyncio.gather(*(play.replace(place).start() for place in lost))
    assert not any(one.done() for one in asked.values())  # the replacements have not asked yet
    asked |= {place: play.players[place].ask() for place in lost}
    rings = await asyncio.gather(*(asked[place] for place in range(count)))
    check_circle(rings)
    assert rings[0].generation > before


async def test_who_waits_is_shown_to_wait_and_says_for_whom():
    play = Play(2)
    first = await play.begin()
    await play.lose(1)
    one = play.players[0]
    asked = one.ask()
    await one.hear(f"INFO the ring of generation {first[0].generation} has ended")
    await one.hear("waiting for 1 of 2 workers", "worker-1 at", "refused")
    assert one.is_waiting
    again = play.replace(1)
    await again.start()
    await again.hear("worker-0 and others wait: the command starts")
    await one.hear("waiting for 1 of 2 workers", "has not asked for its neighbours yet")
    await asyncio.gather(asked, again.ask())
    assert not one.is_waiting
    agreed = [[line for line in who.lines if "are here and agree" in line] for who in (one, again)]
    assert [len(lines) for lines in agreed] == [2, 1]  # once for each meeting of all


async def test_whoever_does_not_come_is_named():
    play = Play(3, gate=100.0)
    await play.begin()
    await play.lose(1)
    asked = [play.players[place].ask() for place in (0, 2)]
    for error in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(error, PeersMissingError)
        assert "gave up after 100 s" in str(error)
        assert f"worker-1 at {play.address(1)}: refused" in str(error)


@pytest.mark.parametrize("lost", [0, 1])
async def test_one_that_is_lost_again_and_again_is_given_up(lost):
    play = Play(2, most_losses=2)
    await play.begin()
    await play.lose(lost)
    asked = play.players[1 - lost].ask()
    for _ in range(4):
        again = play.replace(lost)
        await again.start()
        await asyncio.sleep(3)
        await again.kill()
    (error,) = await asyncio.gather(asked, return_exceptions=True)
    assert isinstance(error, PeersMissingError)
    assert "gave up after 3 meetings without a ring" in str(error)
    assert f"worker-{lost} at" in str(error)


async def test_a_worker_that_flaps_extends_no_limit():
    play = Play(3, gate=100.0, start_seconds=100.0)
    await play.begin()
    await play.lose(1)
    asked = play.players[0].ask()
    flapping = play.players[2].ask()
    await play.replace(1).start()  # it is sent ahead, and never asks
    for _ in range(20):
        await asyncio.sleep(20)
        flapping.cancel()
        await asyncio.sleep(20)
        flapping = play.players[2].ask()
    assert asked.done()
    assert isinstance(asked.exception(), PeersMissingError)


async def test_a_replacement_that_does_not_agree_is_refused_with_the_reason():
    play = Play(2)
    await play.begin()
    await play.lose(1)
    asked = play.players[0].ask()
    wrong = play.replace(1, facts={"image": "0.2.0"}).start()
    for error in await asyncio.gather(asked, wrong, return_exceptions=True):
        assert isinstance(error, ContradictionError)
        assert "image version of worker-1" in str(error)


async def test_a_worker_0_that_starts_has_those_who_ask_wait_for_its_command():
    play = Play(3, gate=100.0)
    await play.begin()
    await play.lose(0)
    asked = [play.players[place].ask() for place in (1, 2)]
    await asyncio.sleep(50)
    new = play.replace(0)
    await new.start()
    await asyncio.sleep(1000)  # longer than `gate`: the others wait for its command to start
    await play.players[1].hear("worker-0 at", "its command has not asked for its neighbours yet")
    check_circle(await asyncio.gather(new.ask(), *asked))


async def _live(play: Play, place: int, chance: random.Random) -> None:
    """Play one container: its command asks, trains until the ring breaks, and asks again."""
    one = play.players[place]
    await one.start()
    await asyncio.sleep(chance.choice([0.0, 0.1, 3.0, 30.0]))
    while True:
        await one.ask()
        await until(one.sees_it_break)
        await asyncio.sleep(chance.choice([0.0, 0.01, 0.5, 8.0]))


def _is_whole(play: Play) -> bool:
    """Tell whether all are one ring. As worker 0's command, end a ring that others wait to join."""
    chief = play.players[0]
    if chief.ring and chief.news and chief.news.pop():
        for one in play.players:
            one.leave()
    rings = [one.ring for one in play.players]
    generations = {ring.generation for ring in rings if ring}
    return all(rings) and len(generations) == 1 and rings[0].size == len(rings)


@pytest.mark.parametrize(
    "seed", [*range(15), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(15, 40))]
)
async def test_whenever_and_however_often_containers_are_killed_all_are_a_ring_in_the_end(seed):
    chance = random.Random(seed)
    count = chance.choice([2, 3, 5])
    least = chance.choice([None, count // 2 + 1]) if count > 2 else None
    play = Play(count, least=least, after_seconds=chance.choice([0.0, 5.0]), most_losses=50)
    lives = {place: asyncio.create_task(_live(play, place, chance)) for place in range(count)}
    for _ in range(chance.randrange(1, 8)):
        await asyncio.sleep(chance.choice([0.0, 0.01, 0.05, 1.0, 7.0, 40.0]))
        place = chance.randrange(count)
        lives[place].cancel()
        await play.players[place].kill()
        await asyncio.sleep(chance.choice([0.0, 0.02, 1.0, 10.0]))
        play.replace(place)
        lives[place] = asyncio.create_task(_live(play, place, chance))
    while not _is_whole(play):
        failed = [one for one in lives.values() if one.done()]
        assert not failed, failed
        await asyncio.sleep(0.3)
    check_circle([one.ring for one in play.players])
