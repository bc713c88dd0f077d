"""Starts the output of `export kubernetes`. Pods train, are killed and evicted, and end alike.

The pods are containers (tests/harness/pods.py), and the tests act as the Job controller.
"""

import copy
import signal

import pytest

from harness.ended import run_and_remove, wait_for_end
from harness.pods import action, evict, indexed, make_pods, probe, read_manifests
from harness.waiting import logs_of, wait_for_text, wait_until

LIMIT_SECONDS = 150
LEAST_STEP = 10
SETTINGS = (f"TRAINER_CHECKPOINT_STEPS={LEAST_STEP}", "TRAINER_THREADS=1")
COMMAND = ("--epochs", "12")
TRAINS = "epoch  3/12  step"
RUN_DIR = "/runs/train"


@pytest.fixture(scope="module")
def exported(workbench):
    """Return the documents that the image itself prints."""

    def run(*command, settings=SETTINGS):
        variables = [part for setting in settings for part in ("--env", setting)]
        options = ("--image", workbench.image, *variables)
        printed = run_and_remove(workbench, "export", "kubernetes", *options, "--", *command)
        assert printed.code == 0, printed.err
        return read_manifests(printed.out)

    return run


@pytest.fixture(scope="module")
def job(exported):
    return exported(*COMMAND)["Job"]


@pytest.fixture
def namespace(workbench, tmp_path):
    with make_pods(workbench, tmp_path) as pods:
        yield pods


@pytest.fixture(scope="module")
def undisturbed(workbench, job, tmp_path_factory):
    """The weights' digest of an undisturbed run, and the status of its pods."""
    with make_pods(workbench, tmp_path_factory.mktemp("undisturbed")) as pods:
        containers = [pods.start(pod) for pod in indexed(job)]
        wait_for_text(containers[0], TRAINS, LIMIT_SECONDS)
        lines = [container.exec_run(["status"]).output.decode() for container in containers]
        digest = digest_of(pods, containers)
        assert [pods.message(container) for container in containers] == ["", ""]
        return digest, lines


def results_of(pods, containers):
    """Wait until the pods succeed; return their results."""
    for container in containers:
        ended = wait_for_end(container, LIMIT_SECONDS)
        assert ended.code == 0, ended.err
    return [pods.result(container, RUN_DIR, i) for i, container in enumerate(containers)]


def digest_of(pods, containers):
    """Wait until the pods succeed; return their common digest of the weights."""
    (digest,) = {result["weights_sha256"] for result in results_of(pods, containers)}
    return digest


def assert_resumed(pods, containers, digest):
    """Wait until the pods succeed; check that all resumed at one step, and their digest."""
    results = results_of(pods, containers)
    assert {result["weights_sha256"] for result in results} == {digest}
    (step,) = {result["resumed_from_step"] for result in results}
    assert (step or 0) >= LEAST_STEP, results
    assert f"resuming from step {step}" in logs_of(containers[0])


def wait_until_live(container, template):
    """Run a pod's probes until both succeed."""

    def holds():
        return all(probe(container, template, kind) for kind in ("livenessProbe", "readinessProbe"))

    wait_until(holds, 20, "the probes hold", lambda: logs_of(container))


def decision(job, container, *, is_disrupted):
    """Wait for a pod's failure; return the controller's action."""
    code = wait_for_end(container, LIMIT_SECONDS).code
    assert code != 0
    return action(job["spec"]["podFailurePolicy"], code, is_disrupted=is_disrupted)


def test_a_killed_pod_is_replaced_and_the_weights_are_the_same(namespace, job, undisturbed):
    templates = indexed(job)
    pods = [namespace.start(template) for template in templates]
    wait_for_text(pods[0], TRAINS, LIMIT_SECONDS)
    wait_until_live(pods[1], templates[1])
    pods[1].kill(signal.SIGKILL)
    assert decision(job, pods[1], is_disrupted=False) == "Count"
    pods[1] = namespace.start(templates[1])
    assert_resumed(namespace, pods, undisturbed[0])


def test_the_status_of_a_pod_shows_a_line_of_its_own(undisturbed):
    """It is not a line of TensorFlow's, although other workers than the chief print hardly any."""
    for shown in undisturbed[1]:
        (line,) = [text for text in shown.splitlines() if text.startswith("last line")]
        assert "worker-" in line, shown


@pytest.mark.long
def test_a_wrong_configuration_fails_the_job_with_its_reason(namespace, exported):
    job = exported("--epochs", "five")["Job"]
    pods = [namespace.start(template) for template in indexed(job)]
    assert {decision(job, pod, is_disrupted=False) for pod in pods} == {"FailJob"}
    assert "TRAINER_EPOCHS" in namespace.message(pods[0])


@pytest.mark.long
@pytest.mark.parametrize("index", [0, 1])
def test_an_evicted_pod_saves_and_is_replaced(namespace, job, undisturbed, index):
    templates = indexed(job)
    pods = [namespace.start(template) for template in templates]
    wait_for_text(pods[0], TRAINS, LIMIT_SECONDS)
    evict(pods[index], templates[index])
    assert wait_for_end(pods[index]).code == 143
    assert decision(job, pods[index], is_disrupted=True) == "Ignore"
    pods[index] = namespace.start(templates[index])
    assert_resumed(namespace, pods, undisturbed[0])


FREEZE = """
import os, signal
mine = {1, os.getpid(), os.getppid()}
for pid in {int(name) for name in os.listdir("/proc") if name.isdigit()} - mine:
    os.kill(pid, signal.SIGSTOP)
"""


@pytest.mark.long
def test_a_pod_that_does_not_end_is_killed_after_its_grace_and_replaced(
    namespace, job, undisturbed
):
    templates = indexed(copy.deepcopy(job))
    frozen = templates[1]
    frozen.spec["terminationGracePeriodSeconds"] = 3
    pods = [namespace.start(template) for template in templates]
    wait_for_text(pods[0], TRAINS, LIMIT_SECONDS)
    assert pods[1].exec_run(["python", "-c", FREEZE]).exit_code == 0
    evict(pods[1], frozen)
    assert wait_for_end(pods[1]).code == 137
    assert decision(job, pods[1], is_disrupted=True) == "Ignore"
    pods[1] = namespace.start(templates[1])
    assert_resumed(namespace, pods, undisturbed[0])


@pytest.mark.long
def test_workers_that_gave_up_on_a_lost_node_go_on_from_the_claim(namespace, exported, undisturbed):
    """The node of one pod stays lost for longer than the other pod waits."""
    job = exported(*COMMAND, settings=(*SETTINGS, "RENDEZVOUS_TIMEOUT=3", "MAX_RESTARTS=0"))["Job"]
    templates = indexed(job)
    pods = [namespace.start(template) for template in templates]
    wait_for_text(pods[0], TRAINS, LIMIT_SECONDS)
    pods[1].kill(signal.SIGKILL)
    assert decision(job, pods[0], is_disrupted=False) == "Count"
    assert wait_for_end(pods[0]).code == 75
    pods = [namespace.start(template) for template in templates]
    assert_resumed(namespace, pods, undisturbed[0])
