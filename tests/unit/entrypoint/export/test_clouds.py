"""`export sagemaker`, `vertex` and `skypilot` print only fields that these services have.

The fields are copied from botocore 1.44.8 (CreateTrainingJob, 2017-07-24), the discovery
document aiplatform.v1 of google-api-python-client 2.202.0, and sky/utils/schemas.py of SkyPilot
0.14.1.
"""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from entrypoint.export.export import KINDS, filled_in
from entrypoint.export.options import parse_options

STORAGE = {"sagemaker": "s3://bucket/folder", "vertex": "gs://bucket", "skypilot": "bucket"}
MACHINES = {
    "sagemaker": "ml.g5.xlarge",
    "vertex": "n1-standard-8:NVIDIA_TESLA_T4",
    "skypilot": "L4",
}
OF_SAGEMAKER = {
    "": {
        *("AlgorithmSpecification", "ResourceConfig", "OutputDataConfig", "CheckpointConfig"),
        *("StoppingCondition", "Environment"),
    },
    "AlgorithmSpecification": {"TrainingImage", "TrainingInputMode", "ContainerArguments"},
    "ResourceConfig": {"InstanceType", "InstanceCount", "VolumeSizeInGB"},
    "OutputDataConfig": {"S3OutputPath"},
    "CheckpointConfig": {"S3Uri", "LocalPath"},
    "StoppingCondition": {"MaxRuntimeInSeconds"},
}
REQUIRED_ON_THE_COMMAND_LINE = ("--role-arn", "--training-job-name")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.text(
    "${}()\"'\\ #:x"
)
NASTY = ("", " ", "'", "\\", "$HOME", "$$(A)", "$(A)", "no", "5", "😀", "\x85", "a\nb")


def printed(kind, *options, storage=True):
    given = (*(("--storage", STORAGE[kind]) if storage else ()), *options)
    return filled_in(*parse_options([kind, *given], tuple(KINDS)))


def read(kind, *options):
    return yaml.safe_load(printed(kind, *options))


@pytest.mark.parametrize("kind", STORAGE)
def test_a_place_for_the_results_must_be_given(refused, kind):
    assert "--storage: received nothing" in refused(kind)


@pytest.mark.parametrize("kind", STORAGE)
def test_with_gpus_the_machine_must_be_given(refused, kind):
    arguments = (kind, "--storage", STORAGE[kind], "--gpus", "1")
    assert "--machine: received nothing" in refused(*arguments)
    assert MACHINES[kind].split(":")[0] in printed(kind, "--gpus", "1", "--machine", MACHINES[kind])


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        ("sagemaker", "--storage", "gs://bucket"),
        ("vertex", "--storage", "s3://bucket"),
        ("skypilot", "--storage", "s3://bucket"),
        ("sagemaker", "--machine", "c5.2xlarge"),
        ("vertex", "--machine", "n1 standard"),
        ("skypilot", "--machine", "L4"),  # without GPUs
        ("kubernetes", "--machine", "n1-standard-8"),
    ],
)
def test_values_of_another_cloud_are_refused(refused, kind, option, value):
    own = ("--storage", STORAGE[kind]) if option == "--machine" and kind in STORAGE else ()
    assert f'{option}: received "{value}"' in refused(kind, *own, option, value)


def test_sagemaker_gets_only_fields_that_are_written_down():
    found = read("sagemaker", "--workers", "3", "--", "--epochs", "2")
    assert set(found) == OF_SAGEMAKER[""]
    for name, fields in OF_SAGEMAKER.items():
        assert not name or set(found[name]) == fields
    assert found["ResourceConfig"]["InstanceCount"] == 3
    run_dir = found["Environment"]["TRAINER_RUN_DIR"]
    assert run_dir == found["CheckpointConfig"]["LocalPath"]
    assert "ContainerArguments" not in read("sagemaker")["AlgorithmSpecification"]


def test_sagemakers_header_gives_the_fields_that_are_missing():
    header = [line for line in printed("sagemaker").splitlines() if line.startswith("#")]
    for option in REQUIRED_ON_THE_COMMAND_LINE:
        assert option in " ".join(header)


@pytest.mark.parametrize(
    "options",
    [
        ("--env", "A=" + "x" * 513),
        ("--", "x" * 257),
        ("--", "a\nb"),
        ("--", *["x"] * 101),
    ],
)
def test_what_sagemaker_would_refuse_is_refused_here(refused, options):
    assert "(SageMaker)" in refused("sagemaker", "--storage", "s3://bucket", *options)


def test_vertex_gets_a_chief_and_the_others():
    gpus = ("--gpus", "2", "--machine", MACHINES["vertex"])
    found = read("vertex", "--workers", "4", *gpus, "--env", "A=1", "--", "--epochs", "2")
    assert set(found) == {"workerPoolSpecs", "baseOutputDirectory"}
    chief, others = found["workerPoolSpecs"]
    assert (chief.pop("replicaCount"), others.pop("replicaCount")) == (1, 3)
    assert chief == others
    assert chief["machineSpec"] == {
        "machineType": "n1-standard-8",
        "acceleratorType": "NVIDIA_TESLA_T4",
        "acceleratorCount": 2,
    }
    container = chief["containerSpec"]
    assert set(container) == {"imageUri", "args", "env"}
    assert {"name": "A", "value": "1"} in container["env"]
    assert found["baseOutputDirectory"] == {"outputUriPrefix": "gs://bucket/train"}


def test_vertex_gets_nothing_that_is_empty():
    (chief,) = read("vertex", "--workers", "1")["workerPoolSpecs"]
    assert set(chief["containerSpec"]) == {"imageUri"}


def test_skypilot_gets_only_fields_that_are_written_down():
    found = read("skypilot", "--gpus", "2", "--machine", "L4", "--workers", "3")
    assert set(found) == {"name", "num_nodes", "resources", "file_mounts", "run"}
    assert (found["num_nodes"], found["resources"]) == (3, {"accelerators": "L4:2"})
    assert found["file_mounts"] == {"/outputs": {"name": "bucket", "mode": "MOUNT"}}


def received(kind, value, folder):
    """Return the variable A and the command's last word, as a worker would see them."""
    found = read(kind, "--env", f"A={value}", "--", "run", value)
    if kind == "sagemaker":
        arguments = found["AlgorithmSpecification"]["ContainerArguments"]
        return found["Environment"]["A"], arguments[-1]
    if kind == "vertex":
        container = found["workerPoolSpecs"][0]["containerSpec"]
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        return expanded_by_vertex(variables["A"]), container["args"][-1]
    text = 'docker() { printf "%s\\0" "$@"; }\n' + found["run"]
    ended = subprocess.run(
        ["bash"], input=text.encode(), capture_output=True, cwd=folder, check=True
    )
    words = ended.stdout.decode().split("\0")[:-1]
    (variable,) = [word for word in words if word.startswith("A=")]
    return variable.removeprefix("A="), words[-1]


def expanded_by_vertex(text):
    """Replace `$$` by `$`, as Kubernetes does. Fail on a reference to a variable."""
    assert not re.search(r"(?<!\$)(\$\$)*\$\(", text), text
    return text.replace("$$", "$")


@pytest.mark.parametrize("kind", STORAGE)
@given(value=TEXTS)
@settings(max_examples=30, deadline=None)
def test_every_value_arrives_as_it_was_given(tmp_path_factory, kind, value):
    if kind == "sagemaker":
        value = value.replace("\n", "")[:256]
    assert received(kind, value, tmp_path_factory.getbasetemp()) == (value, value)


for nasty in NASTY:
    test_every_value_arrives_as_it_was_given = example(value=nasty)(
        test_every_value_arrives_as_it_was_given
    )
