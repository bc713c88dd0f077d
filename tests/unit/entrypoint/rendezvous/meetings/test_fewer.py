"""MIN_WORKERS: survivors continue without lost workers, and take them in when they come back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import ClusterSpec
from entrypoint.rendezvous.outcome import ContradictionError, Ring
from harness.play import Play, Player, check_circle, seen, until

pytestmark = pytest.mark.slow


async def begin(count: int, least: int, **options: object) -> Play:
    """Return workers in a ring. At least `least` of them go on after a loss."""
    play = Play(count, least=least, **options)
    await play.begin()
    return play


async def back(play: Play, place: int, **options: object) -> Player:
    """Start a lost worker again, while the others train."""
    one = play.replace(place, **options)
    await one.start()
    return one


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("count", "lost"), [(3, (1,)), (3, (2,)), (5, (1, 3)), (5, (4, 3))], ids=str
)
async def test_the_others_go_on_without_the_lost(count, lost):
    play = await begin(count, count // 2 + 1)
    await play.lose(*lost)
    left = [place for place in range(count) if place not in lost]
    rings = await play.ring(*left)
    check_circle(rings)
    assert rings[0].positions == tuple(left)
    missing = ", ".join(f"worker-{place}" for place in sorted(lost))
    for place in left:
        await play.players[place].hear(f"{len(left)} of {count} workers are here", missing)


async def test_the_lost_are_waited_for_first():
    play = await begin(3, 2, after_seconds=20.0)
    await play.lose(2)
    began = now()
    await play.ring(0, 1)
    assert now() - began >= 20.0


async def ring_with_one_back_after(play: Play, seconds: float) -> list[Ring]:
    """Lose worker 1, start it again after `seconds`, and let it ask a minute later."""
    await play.lose(1)
    asked = [play.players[place].ask() for place in (0, 2)]
    await asyncio.sleep(seconds)
    one = await back(play, 1)
    await asyncio.sleep(60)
    return await asyncio.gather(*asked, one.ask())


async def test_a_worker_that_starts_has_its_time_though_another_is_absent():
    play = await begin(4, 3, gate=60.0, start_seconds=300.0)
    await play.lose(3)
    await play.ring(0, 1, 2)
    rings = await ring_with_one_back_after(play, 20)
    assert {ring.size for ring in rings} == {3}


async def test_members_hear_at_once_that_the_last_missing_worker_starts():
    play = await begin(3, 3, gate=300.0, start_seconds=300.0)
    await play.ring()
    rings = await ring_with_one_back_after(play, 297.5)
    assert {ring.size for ring in rings} == {3}


async def test_where_all_are_back_at_once_nobody_waits():
    play = await begin(3, 2, after_seconds=200.0)
    began = now()
    assert (await play.ring())[0].positions == (0, 1, 2)
    assert now() - began < 10.0


@pytest.mark.parametrize("lost", [(0,), (1, 2)], ids=str)
async def test_without_worker_0_or_without_enough_they_wait(lost):
    play = await begin(3, 2)
    await play.lose(*lost)
    asked = {place: play.players[place].ask() for place in range(3) if place not in lost}
    await asyncio.sleep(100)
    assert not any(one.done() for one in asked.values())
    await asyncio.gather(*(back(play, place) for place in lost))
    asked |= {place: play.players[place].ask() for place in lost}
    check_circle(await asyncio.gather(*(asked[place] for place in range(3))))


async def test_who_was_lost_goes_ahead_and_is_taken_in_when_its_command_asks():
    play = await begin(3, 2)
    await play.lose(1)
    short = await play.ring(0, 2)
    one = await back(play, 1)
    await one.hear("worker-0 and others train already: the command starts")
    asked = one.ask()
    await play.players[0].told("worker-1")
    await one.hear("2 of 3 workers train", "this one waits to join, at the end of a call")
    await asyncio.sleep(3 * 86_400 / 30)
    assert not asked.done()  # it may wait for ever
    assert len(set(one.prolonged)) == 1
    assert len([line for line in one.lines if one.prolonged[0] in line]) < 30  # less and less often
    await play.lose()  # as the commands do at the end of a call
    rings = await asyncio.gather(play.players[0].ask(), asked, play.players[2].ask())
    check_circle(rings)
    assert rings[0].generation > short[0].generation


async def test_who_comes_back_and_cannot_be_dialled_is_told_so():
    play = await begin(3, 2)
    await play.lose(1)
    await play.ring(0, 2)
    nowhere = Address("10.9.9.9", 2222)
    play.space.moved[play.address(0).host, play.address(1)] = nowhere
    wrong = play.player(1)
    started = wrong.start()
    await wrong.hear("2 of 3 workers train", "but does not answer at its advertised address")
    await play.players[0].hear("WARNING", "cannot join: worker-1 at")
    assert not started.done()
    play.space.moved.clear()
    await started


async def test_who_comes_back_to_its_address_takes_the_place_of_one_who_is_not_there():
    play = await begin(3, 2)
    await play.lose(1)
    await play.ring(0, 2)
    nowhere = Address("10.9.9.9", 2222)
    elsewhere = [
        replace(one, address=nowhere) if place == 1 else one
        for place, one in enumerate(play.spec.members)
    ]
    wrong = play.player(1, spec=ClusterSpec(tuple(elsewhere)), host=nowhere.host)
    started = wrong.start()
    await wrong.hear("but does not answer at its advertised address")
    (await back(play, 1)).ask()
    with pytest.raises(ContradictionError, match="an index that no other worker has"):
        await started
    await play.players[0].told("worker-1")


async def test_one_whose_ring_broke_before_worker_0_has_noticed_is_told_so():
    play = await begin(3, 2)
    await play.lose(1)
    await play.ring(0, 2)
    asked = play.players[2].ask()
    await play.players[2].hear(
        "worker-2 did, too, but its ring has broken, and worker-0 has not noticed that yet"
    )
    check_circle(await asyncio.gather(play.players[0].ask(), asked))


async def test_half_of_those_who_trained_last_wait_for_the_others():
    """Two of three train, and one is lost. It may be frozen, or go on with another worker 0."""
    play = await begin(3, 2)
    await play.lose(1)
    await play.ring(0, 2)
    one = await back(play, 1)
    asked = [one.ask()]
    await play.players[0].told("worker-1")
    await play.lose(2)
    asked.append(play.players[0].ask())
    why = "2 of 3 workers are here, but only 1 of the 2 that trained last"
    await one.hear(why)
    await asyncio.sleep(100)
    assert not any(one.done() for one in asked)
    third = await back(play, 2)
    rings = await asyncio.gather(asked[1], asked[0], third.ask())
    check_circle(rings)


async def test_worker_0_in_another_process_leads_most_of_those_who_trained_last():
    """A new worker 0 knows of no ring. The workers of the last ring tell it."""
    play = await begin(5, 3)
    await play.lose(0, 4)
    asked = [play.players[place].ask() for place in (1, 2, 3)]
    new = await back(play, 0)
    rings = await asyncio.gather(new.ask(), *asked)
    check_circle(rings)
    assert rings[0].positions == (0, 1, 2, 3)


@pytest.mark.parametrize(("of_worker_0", "of_the_other"), [(0, 5), (5, 0)])
async def test_one_of_those_who_trained_last_waits_whoever_replaced_the_others(
    of_worker_0, of_the_other
):
    """The other two may go on elsewhere, with a second worker 0 or while this one was frozen."""
    play = Play(3, least=2)
    started = [
        play.replace(0, seen=seen(of_worker_0, 3)).start(),
        play.replace(2, seen=seen(of_the_other, 3)).start(),
    ]
    await play.players[0].hear("2 of 3 workers are here, but only 1 of the 3 that trained last")
    await asyncio.sleep(100)
    assert not any(one.done() for one in started)


async def test_a_worker_0_that_was_replaced_ends_alone():
    """It was frozen. The others went on with another worker 0, which is away for the moment."""
    play = Play(3, least=2)
    old = play.player(0, seen=seen(5, 3)).start()
    other = play.replace(1, seen=seen(6, 3)).start()
    with pytest.raises(ContradictionError, match="was in a later ring, with another worker-0"):
        await old
    await asyncio.gather(play.players[0].start(), play.players[2].start(), other)


async def test_a_first_start_waits_for_all():
    play = Play(3, least=2)
    two = [play.players[place].start() for place in (0, 1)]
    await asyncio.sleep(100)
    assert not any(one.done() for one in two)
    await asyncio.gather(*two, play.players[2].start())


async def test_who_comes_with_other_settings_is_told_so_and_the_others_go_on():
    play = await begin(5, 3)
    await play.lose(3, 4)
    await play.ring(0, 1, 2)
    one = await back(play, 3)
    asked = one.ask()
    await play.players[0].told("worker-3")
    with pytest.raises(ContradictionError, match="image version of worker-4"):
        await back(play, 4, facts={"image": "0.2.0"})
    await play.players[0].hear("WARNING", "image version of worker-4 at", "It is sent away")
    assert not asked.done()
    await play.lose()
    rings = await asyncio.gather(*(play.players[place].ask() for place in (0, 1, 2)), asked)
    assert rings[0].positions == (0, 1, 2, 3)


@pytest.mark.parametrize("asks", [True, False], ids=["it asks", "it starts"])
async def test_who_is_known_to_be_missing_is_not_waited_for_again(asks):
    """A worker comes back and is lost while the others save. The ring loses no worker."""
    play = await begin(3, 2, after_seconds=200.0)
    await play.lose(1)
    await play.ring(0, 2)
    one = await back(play, 1)
    if asks:
        one.ask()
        await play.players[0].told("worker-1")
    await one.kill()
    if asks:
        await play.players[0].told()
    await play.lose()
    began = now()
    assert (await play.ring(0, 2))[0].positions == (0, 2)
    assert now() - began < 10.0


@pytest.mark.parametrize("was_awaited", [True, False])
async def test_one_that_only_starts_holds_nobody_up(was_awaited):
    play = await begin(3, 2, after_seconds=200.0)
    await play.lose(1)
    if was_awaited:
        await play.ring(0, 2)
        (await back(play, 1)).ask()
        await play.players[0].told("worker-1")
        await play.lose(1)
    started = play.replace(1).start()
    began = now()
    assert (await play.ring(0, 2))[0].positions == (0, 2)
    assert now() - began < 10.0
    await started


async def test_one_whose_neighbour_cannot_be_reached_is_left_out_for_a_while():
    """It reaches worker 0, so it comes to each meeting. But no ring can be formed with it."""
    play = await begin(3, 2)
    await play.lose(1)
    await play.ring(0, 2)
    play.space.cut.add((play.address(1).host, play.address(2).host))
    one = await back(play, 1)
    asked = one.ask()
    chief = play.players[0]
    await chief.told("worker-1")
    await play.lose()
    assert (await play.ring(0, 2))[0].positions == (0, 2)
    why = "is left out for 30 s: it was met twice, but no ring was formed with it"
    await chief.hear("WARNING worker-1", why)
    assert not any(why in line for line in play.players[2].lines)
    await one.hear("2 of 3 workers train; this one", why)
    assert not asked.done()
    chief.news.clear()
    began = now()
    await chief.told("worker-1")
    assert now() - began > 20.0
    play.space.cut.clear()
    await play.lose()
    check_circle(await asyncio.gather(chief.ask(), asked, play.players[2].ask()))


async def test_of_two_that_come_back_the_one_that_reaches_its_neighbour_is_taken_in():
    play = await begin(5, 3)
    await play.lose(1, 3)
    await play.ring(0, 2, 4)
    play.space.cut.add((play.address(1).host, play.address(2).host))
    (await back(play, 1)).ask()
    asked = (await back(play, 3)).ask()
    chief = play.players[0]
    while not asked.done():
        await until(lambda: bool(chief.news and chief.news[-1]))
        chief.news.clear()
        await play.lose()
        rings = await play.ring(0, 2, 4)
        assert 1 not in rings[0].positions
    check_circle([rings[0], rings[1], await asked, rings[2]])


async def test_meetings_in_vain_are_given_up():
    play = await begin(3, 2, most_losses=1)
    for one, other in ((0, 1), (1, 2), (0, 2), (1, 0), (2, 1)):
        play.space.cut.add((play.address(one).host, play.address(other).host))
    (error,) = await asyncio.gather(play.players[0].ask(), return_exceptions=True)
    assert "gave up after" in str(error)
