"""Starts the output of `export jobset`, `trainjob` and `tfjob` as their controllers would.

Names, variables and Services come from the controllers' documents (tests/harness/pods.py). The pods
are those of a plain Job (tests/unit/entrypoint/export/test_kubeflow.py). test_kubernetes.py kills
and evicts pods of such a Job.
"""

import signal

import pytest

from harness.ended import run_and_remove, wait_for_end
from harness.pods import make_pods, of_jobset, of_tfjob, of_trainjob, read_manifests
from harness.waiting import logs_of, wait_for_text

LIMIT_SECONDS = 150
PODS = {
    "jobset": lambda found: of_jobset(found["JobSet"]),
    "trainjob": of_trainjob,
    "tfjob": of_tfjob,
}
LEAST_STEP = 10
SETTINGS = (f"TRAINER_CHECKPOINT_STEPS={LEAST_STEP}", "TRAINER_THREADS=1", "VERBOSE=1")
# The operator replaces a pod with this exit code or a higher one (restartPolicy: ExitCode).
RETRIED_FROM = 128


@pytest.fixture
def namespace(workbench, tmp_path):
    with make_pods(workbench, tmp_path) as pods:
        yield pods


@pytest.fixture
def exported(workbench):
    def run(kind, *command):
        settings = [part for setting in SETTINGS for part in ("--env", setting)]
        arguments = ("export", kind, "--image", workbench.image, *settings, "--", *command)
        printed = run_and_remove(workbench, *arguments)
        assert printed.code == 0, printed.err
        return PODS[kind](read_manifests(printed.out))

    return run


def assert_resumed(namespace, containers):
    """Wait until the pods succeed; check that all resumed at one step, with the same weights."""
    for container in containers:
        assert wait_for_end(container, LIMIT_SECONDS).code == 0, logs_of(container)
    results = [namespace.result(one, "/runs/train", i) for i, one in enumerate(containers)]
    assert len({result["weights_sha256"] for result in results}) == 1
    (step,) = {result["resumed_from_step"] for result in results}
    assert (step or 0) >= LEAST_STEP, results


@pytest.mark.long
@pytest.mark.parametrize("kind", PODS)
def test_the_pods_train_together_and_a_killed_one_is_replaced(namespace, exported, kind):
    templates = exported(kind, "--epochs", "12")
    containers = [namespace.start(template) for template in templates]
    wait_for_text(containers[0], "epoch  3/12  step", LIMIT_SECONDS)
    containers[1].kill(signal.SIGKILL)
    assert wait_for_end(containers[1]).code >= RETRIED_FROM
    containers[1] = namespace.start(templates[1])
    assert_resumed(namespace, containers)


def test_a_tfjob_ends_for_good_where_the_configuration_is_wrong(namespace, exported):
    for template in exported("tfjob", "--epochs", "five"):
        assert 0 < wait_for_end(namespace.start(template)).code < RETRIED_FROM
