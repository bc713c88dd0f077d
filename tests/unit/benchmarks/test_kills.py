"""The cost of a kill, computed from the steps that the workers recorded."""

import pytest

from benchmarks.clusters.kills import Cost, cost_of, events, is_wiped, line


def steps(*times):
    return [(at, "step") for at in times]


LOST = [
    *steps(9.8, 9.9, 10.0),
    *[(11.0, "begins"), (11.5, "begins"), (15.5, "has imported")],
    *steps(16.5, 16.6),
]


def test_who_goes_on_without_the_lost_one_stands_still_twice():
    early = steps(9.9, 10.0, 10.4, 10.5, 15.9, 16.0, 16.4, 16.5, 16.6)
    late = steps(9.9, 10.0, 10.05, 10.6, 10.7, 16.0, 16.5, 16.6)  # one more step had ended
    cost = cost_of([early, LOST, late], 1, moment=10.0)
    assert cost.next_step == pytest.approx(0.6)
    assert cost.second_pause == pytest.approx(5.4)
    assert cost.full_strength == pytest.approx(6.5)
    assert cost.imported == pytest.approx(4.0)
    assert cost.beyond_import == pytest.approx(1.0)
    assert cost.restarted == 0


def test_who_waits_for_it_or_starts_again_does_its_next_step_with_it():
    waiting = steps(9.9, 10.0, 16.5, 16.6)
    again = [*steps(9.9, 10.0), (12.0, "begins"), (15.0, "has imported"), *steps(16.6, 16.7)]
    cost = cost_of([LOST, waiting, again], 0, moment=10.0)
    assert cost.next_step == pytest.approx(6.6)
    assert cost.second_pause == 0
    assert cost.restarted == 1


def test_a_line_that_a_kill_has_cut_off_is_left_out(tmp_path):
    (tmp_path / "steps.jsonl").write_text('[1.0, "step"]\n[2.0, "ste\n[3.0, "begins"]\n')
    assert events(tmp_path) == [(1.0, "step"), (3.0, "begins")]


def test_a_case_has_its_medians_and_extremes():
    costs = [Cost(value, 0.0, 0.0, 0.0, 0.0, 0) for value in (1.0, 3.0, 2.0)]
    assert line("ring", costs).startswith("| ring | 2.00 (1.00 to 3.00) |")


@pytest.mark.parametrize("victims", [1, 2, 3, 4])
def test_half_of_the_kills_wipe_a_disk_and_each_victim_loses_its_own_as_often_as_not(victims):
    of_two_rounds = [(turn % victims, is_wiped(turn, victims)) for turn in range(2 * victims)]
    everyone = {(victim, wiped) for victim in range(victims) for wiped in (False, True)}
    assert set(of_two_rounds) == everyone
    for kills in range(2, 2 * victims + 1, 2):
        assert sum(wiped for _, wiped in of_two_rounds[:kills]) == kills // 2
