"""A real Docker Swarm of two machines: both stack files train, and lost tasks and nodes return."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from entrypoint.export.export import filled_in
from entrypoint.export.options import parse_options
from harness.inner_daemons import Stack, Swarm, machines

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TRAINING = {"TRAINER_EPOCHS": "20", "TRAINER_CHECKPOINT_STEPS": "10", "TRAINER_THREADS": "1"}
# So many epochs follow that the loss comes during training.
KILLED_AFTER = "epoch  1/20  step"
LEAST_STEP = int(TRAINING["TRAINER_CHECKPOINT_STEPS"])
RUN_SECONDS = 180
STACK = "trainer"


@pytest.fixture(scope="module")
def swarm(workbench):
    with machines(workbench, ["m1", "m2"]) as started:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda machine: machine.load(workbench.image), started))
        made = Swarm(started)
        made.join()
        made.wait_until_ready(2)
        yield made


@pytest.fixture
def stack(swarm, workbench):
    """The stack of compose/swarm.yaml."""
    environment = {"IMAGE": workbench.image, "VERBOSE": "1", **TRAINING}
    one = Stack(swarm, STACK, environment)
    yield one
    one.remove()


@pytest.fixture(scope="module")
def undisturbed(swarm, workbench):
    """The weights' digest of an undisturbed run of `export swarm`."""
    variables = [f"--env={name}={value}" for name, value in TRAINING.items()]
    arguments = ["swarm", "--image", workbench.image, "--name", "exported", *variables]
    text = filled_in(*parse_options(arguments, ("swarm",)))
    exported = Stack(swarm, "exported")
    exported.deploy_text(text)
    exported.wait_until_complete(2, RUN_SECONDS)
    digest = digest_of(exported)
    exported.remove()
    return digest


def results_of(stack):
    """Return the results of both workers."""
    results = stack.results()
    assert sorted(results) == ["worker-0", "worker-1"], stack.output()
    return [one for found in results.values() for one in found]


def digest_of(stack):
    """Return the weights' digest that all workers share."""
    (digest,) = {one["weights_sha256"] for one in results_of(stack)}
    return digest


def assert_resumed(stack):
    """Check that both workers went on from one checkpoint, and not from the beginning."""
    (step,) = {one["resumed_from_step"] for one in results_of(stack)}
    assert (step or 0) >= LEAST_STEP, stack.output()


def test_a_killed_task_is_replaced_and_the_run_ends_with_the_same_weights(stack, undisturbed):
    stack.deploy("/compose/swarm.yaml")
    stack.wait_for_text(KILLED_AFTER, RUN_SECONDS)
    other = stack.swarm.machines[1]
    (task,) = other.ask("docker", "ps", "--quiet", "--filter", f"name={STACK}_worker").split()
    other.ask("docker", "kill", task)
    stack.wait_until_complete(2, RUN_SECONDS)
    assert_resumed(stack)
    assert digest_of(stack) == undisturbed


def test_a_lost_node_is_replaced_and_the_run_ends_with_the_same_weights(stack, undisturbed):
    stack.deploy("/compose/swarm.yaml")
    stack.wait_for_text(KILLED_AFTER, RUN_SECONDS)
    other = stack.swarm.machines[1]
    other.switch_off()
    try:
        stack.swarm.wait_until_ready(1)
        stack.wait_until_complete(2, RUN_SECONDS)
        assert_resumed(stack)
        assert digest_of(stack) == undisturbed
    finally:
        other.switch_on()
    stack.swarm.wait_until_ready(2)
