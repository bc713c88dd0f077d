"""Commands that ask for their neighbours: their connections, and the lines that are printed."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from entrypoint.rendezvous.outcome import ContradictionError, PeersMissingError, PortTakenError
from entrypoint.rendezvous.transport.messages import LARGEST_NUMBER
from harness.play import Play, check_circle
from harness.simulation import MemoryPort

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("token", ["a secret that they share", None], ids=["token", "no token"])
@pytest.mark.parametrize("count", [2, 3, 5, 40])
async def test_all_who_ask_are_connected_in_the_order_of_their_ranks(count, token):
    play = Play(count, token=token)
    check_circle(await play.begin())
    assert not play.space.ports  # nothing listens any more
    assert all(len(one.lines) == 2 for one in play.players)


async def test_a_chief_task_is_the_first():
    play = Play(3, with_chief=True)
    rings = await play.begin()
    check_circle(rings)
    assert play.players[0].lines[-1].startswith("INFO 3 workers are a ring")
    assert play.players[1].lines[-1].startswith("DEBUG 3 workers are a ring")


async def test_asking_again_makes_a_newer_ring():
    play = Play(3)
    generations = [(await play.begin())[0].generation]
    for _ in range(3):
        rings = await play.ring()
        check_circle(rings)
        generations.append(rings[0].generation)
    assert generations == sorted(set(generations))


async def test_without_a_gate_those_that_ask_meet_all_the_same():
    play = Play(3, gate=0)
    for one in play.players:
        one.run()
    for _ in range(2):
        check_circle(await play.ring())


@pytest.mark.parametrize("late", [0, pytest.param(1, marks=pytest.mark.long), 2])
async def test_a_late_command_is_awaited_and_named(late):
    play = Play(3)
    await play.all_run()
    early = [one for one in play.players if one.place != late]
    asked = [one.ask() for one in early]
    for one in early:
        await one.hear(f"worker-{late} at", "has not asked for its neighbours yet")
        assert not one.is_waiting  # its command has never trained
    await asyncio.sleep(5000)  # there is no STARTUP_TIMEOUT here
    rings = await asyncio.gather(*asked, play.players[late].ask())
    check_circle(sorted(rings, key=lambda ring: ring.rank))


async def test_a_command_that_does_not_ask_in_time_is_given_up():
    play = Play(3, start_seconds=600.0)
    await play.all_run()
    asked = [play.players[place].ask() for place in (0, 2)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert "gave up after 600 s" in str(found[0])
    for error in found:
        assert isinstance(error, PeersMissingError)
        assert "worker-1 at" in str(error)


async def test_a_ring_of_a_later_run_is_newer_whatever_the_clock_says():
    play = Play(2)
    play.players[1].seen.note(900_000_000, 2)
    rings = await play.begin()
    assert [ring.generation for ring in rings] == [900_000_001] * 2


async def test_a_clock_that_runs_far_ahead_ends_no_rings(monkeypatch):
    play = Play(2)
    monkeypatch.setattr(time, "time", lambda: 4e9)  # in the year 2096
    ahead = [(await play.begin())[0].generation, (await play.ring())[0].generation]
    monkeypatch.undo()
    after = (await play.ring())[0].generation
    assert ahead[0] < ahead[1] < after < LARGEST_NUMBER


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"facts": {"image": "0.2.0"}}, "image version of worker-1"),
        ({"facts": {"settings": {"TRAINER_SEED": "1"}}}, "TRAINER_EPOCHS of worker-1"),
        ({"facts": {"hosts": ("a:1",)}}, "host list of worker-1"),
    ],
)
async def test_commands_that_do_not_agree_end(options, says):
    play = Play(2)
    play.replace(1, **options)
    for one in play.players:
        one.run()
    found = await asyncio.gather(*(one.ask() for one in play.players), return_exceptions=True)
    for error in found:
        assert isinstance(error, ContradictionError)
        assert says in str(error)


async def test_one_with_another_token_gets_no_place():
    play = Play(2, start_seconds=30.0)
    play.replace(1, token="another secret, as long")
    for one in play.players:
        one.run()
    found = await asyncio.gather(*(one.ask() for one in play.players), return_exceptions=True)
    assert all("uses another CLUSTER_TOKEN, or none" in str(error) for error in found)


async def test_a_port_that_is_taken_is_said_so():
    play = Play(2)
    await play.all_run()
    MemoryPort(play.space, play.address(0))
    with pytest.raises(PortTakenError):
        await play.players[0].ask()


async def test_one_that_asks_anew_joins_those_that_wait():
    play = Play(4)
    await play.all_run()
    asked = [play.players[place].ask() for place in (0, 1, 2)]
    await asyncio.sleep(20)
    for place in (1, 0):
        asked[place] = play.players[place].ask()
        await asyncio.sleep(20)
    check_circle(await asyncio.gather(*asked, play.players[3].ask()))


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (2, 1)], ids=str)
async def test_neighbours_that_cannot_reach_each_other_are_named_and_tried_again(pair):
    play = Play(3, start_seconds=300.0)
    await play.all_run()
    hosts = tuple(play.address(place).host for place in pair)
    play.space.cut.add(hosts)
    asked = [one.ask() for one in play.players]
    await play.players[0].hear(f"worker-{pair[1]} at {play.address(pair[1])}")
    assert not any(one.done() for one in asked)
    play.space.cut.clear()
    check_circle(await asyncio.gather(*asked))


@pytest.mark.parametrize("start_seconds", [300.0, 0.0], ids=["time limit", "no limit"])
async def test_neighbours_that_never_reach_each_other_are_given_up(start_seconds):
    play = Play(3, start_seconds=start_seconds, most_losses=3)
    await play.all_run()
    play.space.cut.add((play.address(1).host, play.address(2).host))
    found = await asyncio.gather(*(one.ask() for one in play.players), return_exceptions=True)
    assert all(isinstance(error, PeersMissingError) for error in found)
    assert "gave up after 4 meetings without a ring" in str(found[0])
    assert f"worker-2 at {play.address(2)}: no answer" in str(found[0])


async def test_however_many_miss_a_neighbour_all_hear_of_it_and_nobody_is_lost():
    play = Play(32, start_seconds=60.0)
    await play.all_run()
    members = [play.address(place).host for place in range(1, 32)]
    play.space.cut |= set(itertools.permutations(members, 2))  # only worker 0 reaches all
    (error, *_) = await asyncio.gather(*(one.ask() for one in play.players), return_exceptions=True)
    assert "no answer" in str(error)
    assert not [line for line in play.players[0].lines if "stopped answering" in line]
    assert [line for line in play.players[1].lines if "ring of 32 workers: worker-" in line]
