"""A real Slurm: jobs train, lose a node, and end in time. The image reads its lists of hosts."""

import random
import re

import pytest

from entrypoint.export.export import filled_in
from entrypoint.export.options import parse_options
from entrypoint.sources.formats.slurm_lists import expand_nodes
from harness.slurm import ENVIRONMENT, UNPACKED, Job, SlurmCluster, slurm_cluster, slurm_image

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TRAINING = {"TRAINER_EPOCHS": "20", "TRAINER_CHECKPOINT_STEPS": "10", "TRAINER_THREADS": "1"}
ENDLESS = TRAINING | {"TRAINER_EPOCHS": "1000"}
# So many epochs follow that the loss comes during training.
KILLED_AFTER = "epoch  1/20  step"
RUN_SECONDS = 120
LOSS_SECONDS = 240
# Slurm may send the signal up to 60 s early: here, when the job has run for 30 to 60 s.
LIMIT_MINUTES, SIGNAL_SECONDS = 2, 60
LISTS = 500


@pytest.fixture(scope="module")
def image(workbench):
    with slurm_image(workbench) as name:
        yield name


@pytest.fixture
def cluster(workbench, image):
    with slurm_cluster(workbench, image) as started:
        yield started


def train(cluster: SlurmCluster, runs: str, *options: str, **variables: str) -> Job:
    return cluster.submit(cluster.entrypoint, f"/runs/{runs}", *options, **variables)


@pytest.fixture(scope="module")
def undisturbed(workbench, image):
    """The output and the results of an undisturbed job."""
    with slurm_cluster(workbench, image) as cluster:
        job = train(cluster, "undisturbed", **TRAINING)
        facts = job.wait_for_end(RUN_SECONDS)
        assert facts["JobState"] == "COMPLETED", job.output()
        return job.output(), job.results()


def test_two_tasks_of_srun_train(undisturbed):
    output, results = undisturbed
    assert [result["status"] for result in results] == ["done", "done"]
    assert len({result["weights_sha256"] for result in results}) == 1
    assert "worker-0 of 2" in output
    assert "Tini is not running as PID 1" not in output


def test_the_exported_batch_file_trains(cluster, workbench, undisturbed):
    """Docker on the nodes is a stand-in: tests/slurm/docker.py."""
    variables = [f"--env={name}={value}" for name, value in TRAINING.items()]
    arguments = ["slurm", "--image", workbench.image, "--storage", "/runs", *variables]
    text = filled_in(*parse_options(arguments, ("slurm",)))
    job = cluster.submit_file(text, "train")
    assert job.wait_for_end(RUN_SECONDS)["JobState"] == "COMPLETED", job.output()
    _, expected = undisturbed
    assert [result["weights_sha256"] for result in job.results()] == [
        result["weights_sha256"] for result in expected
    ]


def test_charliecloud_runs_the_image_as_a_task(workbench, image, undisturbed):
    """The command is that of docs/how-to/schedulers.md."""
    runtime = ["ch-run", f"--set-env={ENVIRONMENT}", "--bind", "/runs:/runs", UNPACKED, "--"]
    with slurm_cluster(workbench, image, may_mount=True) as cluster:
        command = [*runtime, *cluster.entrypoint]
        job = cluster.submit(command, "/runs/unpacked", **TRAINING)
        assert job.wait_for_end(RUN_SECONDS)["JobState"] == "COMPLETED", job.output()
        _, expected = undisturbed
        assert [result["weights_sha256"] for result in job.results()] == [
            result["weights_sha256"] for result in expected
        ]


def test_explain_shows_the_port_of_the_task(cluster):
    job = cluster.submit([*cluster.entrypoint, "explain"], "/runs/explain")
    assert job.wait_for_end(RUN_SECONDS)["JobState"] == "COMPLETED", job.output()
    ports = re.findall(r"WORKER_PORT +(.*?) +(.*)", job.output())
    assert ports == [("8888", "(derived: SLURM_STEP_NODELIST)")] * 2


def test_a_job_that_loses_a_node_is_queued_again_and_resumes(cluster, undisturbed):
    job = train(cluster, "lost", "--requeue", **TRAINING)
    job.wait_for_text(KILLED_AFTER, RUN_SECONDS)
    nodes = job.facts()["NodeList"]
    assert nodes == "n[01-02]"
    cluster.kill("n02")
    facts = job.wait_for_end(LOSS_SECONDS)
    assert (facts["JobState"], facts["Restarts"]) == ("COMPLETED", "1"), job.output()
    assert facts["NodeList"] == "n[01,03]"
    _, expected = undisturbed
    assert [result["weights_sha256"] for result in job.results()] == [
        result["weights_sha256"] for result in expected
    ]
    assert all(result["resumed_from_step"] >= 10 for result in job.results())


def test_a_signal_before_the_time_limit_saves_and_ends_in_time(cluster):
    options = (f"--time={LIMIT_MINUTES}", f"--signal=TERM@{SIGNAL_SECONDS}")
    job = train(cluster, "limited", *options, **ENDLESS)
    facts = job.wait_for_end(60 * LIMIT_MINUTES + 30)
    # If the job had reached its limit, its state would be TIMEOUT.
    assert (facts["JobState"], facts["ExitCode"]) == ("FAILED", "143:0"), job.output()
    assert [result["status"] for result in job.results()] == ["stopped", "stopped"]
    first, second = (newest_step(cluster, f"{job.runs}/worker-{index}") for index in range(2))
    assert first == second > 0


def newest_step(cluster: SlurmCluster, folder: str) -> int:
    """Return the step of a worker's newest checkpoint."""
    names = cluster.ask("ls", f"{folder}/checkpoints").split()
    return int(max(names).partition(".")[0])


def random_list(chance: random.Random) -> str:
    """Return a list of hosts in any of the forms that Slurm reads."""
    return ",".join(_entry(chance) for _ in range(chance.randint(1, 5)))


def _entry(chance: random.Random) -> str:
    prefix = chance.choice(("n", "node", "gpu-a", "r2c", "x1-", "cn0"))
    form = chance.random()
    if form < 0.3:
        return f"{prefix}{_number(chance)}"
    if form < 0.8:
        return f"{prefix}{_bracket(chance)}"
    return f"{prefix}{_bracket(chance)}{chance.choice(('n', '-b'))}{_bracket(chance)}"


def _bracket(chance: random.Random) -> str:
    return f"[{','.join(_range(chance) for _ in range(chance.randint(1, 4)))}]"


def _range(chance: random.Random) -> str:
    first = _number(chance)
    if chance.random() < 0.4:
        return first
    last = str(int(first) + chance.randint(1, 12))
    return f"{first}-{last.zfill(len(first))}"


def _number(chance: random.Random) -> str:
    return str(chance.choice((0, 1, 7, 9, 10, 98, 99, 105, 999))).zfill(chance.randint(1, 4))


def test_lists_of_hosts_are_read_as_slurm_reads_them(cluster):
    chance = random.Random(20261128)
    texts = [random_list(chance) for _ in range(LISTS)]
    program = 'for list in "$@"; do scontrol show hostnames "$list" | paste --serial; done'
    read = cluster.ask("bash", "-c", program, "bash", *texts)
    expected = dict(zip(texts, (line.split() for line in read.splitlines()), strict=True))
    assert {text: expand_nodes(text) for text in texts} == expected
