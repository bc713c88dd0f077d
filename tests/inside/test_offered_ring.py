"""A script's models train over a ring, unless it wants something else or there is no ring."""

import logging
import os
import socket

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from cluster_trainer.collectives import process_ring
from cluster_trainer.collectives.neighbours import EX_CONFIG, VARIABLE, Neighbours, NeighboursError
from cluster_trainer.distribution import ring
from cluster_trainer.problems import ConfigurationError, PeerLostError

GIVEN = {VARIABLE: "7"}


@pytest.fixture(autouse=True)
def left_as_it_was(caplog):
    caplog.set_level(logging.INFO, "trainer")
    yield
    process_ring.use(None)


@pytest.fixture
def asked(monkeypatch):
    """The requests to the entrypoint, which connects a ring of one worker."""
    made = []

    def join(environ):
        made.append(environ)
        return Neighbours(0, 1, 5, (0,), *socket.socketpair())

    monkeypatch.setattr(ring, "join", join)
    return made


def answers(monkeypatch, problem):
    def join(_):
        raise problem

    monkeypatch.setattr(ring, "join", join)


def test_the_ring_is_formed_when_it_is_asked_for(asked, caplog):
    ring.offer_to_script(GIVEN)
    assert process_ring.is_wanted()
    assert not asked
    assert process_ring.current().generation == 5
    assert process_ring.current().size == 1
    assert asked == [GIVEN]
    assert "up: ring of 1 workers" in caplog.text


def test_a_command_that_the_entrypoint_did_not_start_is_offered_none(asked):
    ring.offer_to_script({"TRAINER_COLLECTIVES": "ring"})
    assert not process_ring.is_wanted()
    assert process_ring.current() is None
    assert not asked


def test_a_script_that_has_made_tensorflows_cluster_sums_over_that(asked, monkeypatch, caplog):
    ring.offer_to_script(GIVEN)
    monkeypatch.setattr(context.context(), "_collective_ops_server_def", object())
    assert process_ring.current() is None
    assert not asked
    assert "sums over TensorFlow's cluster" in caplog.text


@pytest.mark.parametrize("collectives", ["", "auto", "ring"])
def test_workers_with_gpus_are_a_ring_and_are_told_of_the_other_way(
    asked, monkeypatch, caplog, collectives
):
    ring.offer_to_script(GIVEN | {"TRAINER_COLLECTIVES": collectives})
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
    assert process_ring.current().size == 1
    assert asked
    assert "MultiWorkerMirroredStrategy" in caplog.text


@pytest.fixture
def left_open(tmp_path):
    """The number of an open file that is not the entrypoint's socket."""
    with (tmp_path / "file").open("w") as file:
        yield str(file.fileno())


def test_a_script_that_hides_its_gpus_trains_on_its_cpu(asked, monkeypatch):
    ring.offer_to_script(GIVEN)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert process_ring.current().size == 1
    assert asked


def test_without_the_entrypoints_socket_a_script_trains_alone_and_says_so(left_open, caplog):
    ring.offer_to_script({VARIABLE: left_open})
    assert process_ring.current() is None
    assert not process_ring.is_wanted()
    (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "trains alone" in warning.getMessage()
    assert f"CLUSTER_GROUP_FD is '{left_open}'" in warning.getMessage()


def test_where_a_ring_was_asked_for_nobody_trains_alone(left_open):
    ring.offer_to_script({VARIABLE: left_open, "TRAINER_COLLECTIVES": "ring"})
    with pytest.raises(ConfigurationError, match="CLUSTER_GROUP_FD is"):
        process_ring.current()
    assert process_ring.is_wanted()


def test_what_the_entrypoint_refuses_is_refused(monkeypatch):
    answers(monkeypatch, NeighboursError("worker-1 has another list", code=EX_CONFIG))
    ring.offer_to_script(GIVEN)
    with pytest.raises(ConfigurationError, match="worker-1 has another list") as caught:
        process_ring.current()
    assert [str(one) for one in caught.value.problems] == ["worker-1 has another list"]
    assert process_ring.is_wanted()


def test_what_the_gate_refuses_is_told_in_its_own_words(monkeypatch):
    """The error does not blame TRAINER_COLLECTIVES, which would change nothing."""
    problems = ["WORKER_INDEX of worker-1: received 1.", "TRAINER_SEED: worker-1 has 7."]
    lines = "\n".join(f"  {one}" for one in problems)
    text = f"cluster-trainer: 2 problems in the configuration\n\n{lines}\n\nNothing was started."
    answers(monkeypatch, NeighboursError(text, code=EX_CONFIG))
    ring.offer_to_script(GIVEN)
    with pytest.raises(ConfigurationError) as caught:
        process_ring.current()
    assert [str(one) for one in caught.value.problems] == problems
    assert "TRAINER_COLLECTIVES" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TRAINER_SILENCE_SECONDS", "10s"),
        ("TRAINER_SILENCE_SECONDS", "0"),
        ("TRAINER_SILENCE_SECONDS", "86401"),
        ("TRAINER_WIRE", "f16"),
    ],
)
def test_a_wrong_setting_is_refused_before_anybody_is_met(asked, name, text):
    ring.offer_to_script(GIVEN | {name: text})
    with pytest.raises(ConfigurationError, match=f'{name} .*: received "{text}"'):
        process_ring.current()
    assert not asked
    assert process_ring.is_wanted()


def test_a_neighbour_that_does_not_come_is_a_lost_peer(monkeypatch):
    answers(monkeypatch, NeighboursError("worker-1 at b:2222: refused", code=75))
    ring.offer_to_script(GIVEN)
    with pytest.raises(PeerLostError, match="worker-1 at b:2222: refused"):
        process_ring.current()
    assert process_ring.is_wanted()  # so that nobody trains alone by mistake


def test_a_process_that_was_forked_off_is_in_no_ring(asked):
    ring.offer_to_script(GIVEN)
    assert process_ring.current() is not None
    child = os.fork()
    if child == 0:
        try:
            is_in_a_ring = process_ring.current() is not None or process_ring.is_wanted()
            os._exit(int(is_in_a_ring))
        finally:
            os._exit(255)  # no error makes the child go on with the tests
    assert os.waitpid(child, 0)[1] == 0
    assert process_ring.current() is not None
    assert asked
