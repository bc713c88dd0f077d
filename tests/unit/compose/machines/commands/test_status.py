"""The status of a cluster while a machine is lost: the other machines' workers are still shown."""

import json

import pytest

from machines import machine
from machines.commands.status import of_one


@pytest.mark.parametrize("word", ["ps", "inspect"])
def test_a_machine_that_is_lost_between_two_questions_is_unreachable(world, word):
    world.machines["m2"].fail(word, "no route")
    done = world.run("status", "--json")
    assert done.returncode == 0, done
    first, second = json.loads(done.stdout)
    assert first["state"] == "running"
    assert (second["state"], second["trouble"]) == ("unreachable", "ana@m2: no route")


@pytest.mark.parametrize("word", ["ps", "inspect"])
def test_a_machine_that_no_longer_answers_is_waited_for_within_a_limit(world, word, monkeypatch):
    monkeypatch.setenv("PATH", world.environ["PATH"])
    monkeypatch.setattr(machine, "ENGINE_SECONDS", 1.0)
    second = world.kept().containers[1]
    world.machines["m2"].hang(word)
    try:
        found = of_one(second, "p", "")
    finally:
        world.machines["m2"].cut_hanging(word)
    assert found["state"] == "unreachable"
    assert "1 s" in found["trouble"]
