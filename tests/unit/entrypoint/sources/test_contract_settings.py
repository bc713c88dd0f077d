"""Folders and hyper-parameters that a scheduler sets reach the trainer's variables.

The files are the examples of
https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html
The variables are those of ENVIRONMENT_VARIABLES.md. SageMaker's own hyper-parameters are those of
test/unit/test_environment.py. Both are in https://github.com/aws/sagemaker-training-toolkit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from entrypoint.settings.command_environment import command_environment
from entrypoint.settings.environ import Environ, read_environ
from entrypoint.sources import with_contract_settings
from entrypoint.sources.resolve import Answer
from entrypoint.start_messages.explanation import explained_values

HOSTS = {"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-1"}
RESOURCES = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2", "algo-3"]}
CHANNEL = {
    "ContentType": "trainingContentType",
    "TrainingInputMode": "File",
    "S3DistributionType": "FullyReplicated",
    "RecordWrapperType": "None",
}
SAGEMAKERS_OWN = {
    "sagemaker_region": "us-west-2",
    "default_user_module_name": "net",
    "sagemaker_job_name": "sagemaker-training-job",
    "sagemaker_program": "main.py",
    "sagemaker_submit_directory": "imagenet",
    "sagemaker_enable_cloudwatch_metrics": True,
    "sagemaker_container_log_level": 30,
    "_tuning_objective_metric": "loss:3.4",
    "sagemaker_parameter_server_num": 2,
    "sagemaker_s3_output": "s3://bucket",
}


def read(root: Path, **texts: str) -> Environ:
    """Return the environment that a start has."""
    return with_contract_settings(read_environ(texts, root, root=root))


def shown(environ: Environ, prefix: str = "TRAINER_") -> dict[str, tuple[str, str]]:
    """Return the trainer's variables as (value, source). The temporary root is cut off."""
    root = str(environ.root)
    return {
        name: (value.text.replace(root, ""), value.source.replace(root, ""))
        for name, value in environ.values.items()
        if name.startswith(prefix)
    }


def write_config(root: Path, **documents: object) -> None:
    folder = root / "opt/ml/input/config"
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        text = document if isinstance(document, str) else json.dumps(document)
        (folder / f"{name}.json").write_text(text)


FOLDERS = {
    "TRAINER_MODEL_DIR": ("/opt/ml/model", "SageMaker"),
    "TRAINER_RUN_DIR": ("/opt/ml/output/data", "SageMaker"),
}


def test_two_spellings_of_a_hyperparameter_are_refused(tmp_path: Path) -> None:
    """Otherwise one of the two values would be ignored."""
    both = {"learning-rate": "0.1", "learning_rate": "0.2", "epochs": "3"}
    found = read(tmp_path, **HOSTS, SM_HPS=json.dumps(both))
    (problem,) = found.problems
    assert all(name in problem.name for name in ("learning-rate", "learning_rate"))
    assert problem.received == "0.1 and 0.2"


@pytest.mark.parametrize("name", ["Epochs", "learningRate", "learning-rate", "L2", "a.B"])
def test_a_hyperparameter_in_both_of_sagemakers_forms_is_one_spelling(
    tmp_path: Path, name: str
) -> None:
    """SageMaker sets SM_HPS with the name as given, and SM_HP_ with the name in capitals."""
    texts = {"SM_HPS": json.dumps({name: "5"}), f"SM_HP_{name.upper()}": "5"}
    found = read(tmp_path, **HOSTS, **texts)
    assert found.problems == ()
    assert [value for one, value in shown(found).items() if one not in FOLDERS] == [
        ("5", f"SM_HP_{name.upper()}")
    ]


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ({"SM_HPS": '{"a-b": 1, "a_b": 2}', "SM_HP_A_B": "3"}, "SM_HPS a-b and a_b"),
        (
            {"SM_HPS": '{"a-b": 3}', "SM_HP_A-B": "1", "SM_HP_a_B": "2"},
            "SM_HP_A-B and SM_HP_a_B",
        ),
    ],
)
def test_two_spellings_in_one_source_are_refused_whatever_the_other_says(
    tmp_path: Path, texts: dict[str, str], names: str
) -> None:
    (problem,) = read(tmp_path, **HOSTS, **texts).problems
    assert (problem.name, problem.received) == (names, "1 and 2")


def test_a_container_of_sagemakers_has_its_folders(tmp_path: Path) -> None:
    write_config(tmp_path, resourceconfig=RESOURCES)
    found = read(tmp_path)
    assert shown(found) == FOLDERS
    assert shown(found, "FAILURE") == {"FAILURE_FILE": ("/opt/ml/output/failure", "SageMaker")}


def test_variables_name_other_folders(tmp_path: Path) -> None:
    found = read(tmp_path, **HOSTS, SM_MODEL_DIR="/m", SM_OUTPUT_DATA_DIR="/o")
    assert shown(found) == {
        "TRAINER_MODEL_DIR": ("/m", "SM_MODEL_DIR"),
        "TRAINER_RUN_DIR": ("/o", "SM_OUTPUT_DATA_DIR"),
    }


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        ({"train": CHANNEL, "evaluation": CHANNEL, "validation": CHANNEL}, "train"),
        ({"validation": CHANNEL, "training": CHANNEL, "train": CHANNEL}, "training"),
        ({"images": CHANNEL}, "images"),
        ({"images": CHANNEL, "labels": CHANNEL}, None),
        ({"train": CHANNEL | {"TrainingInputMode": "Pipe"}}, None),
        ({"../../etc": CHANNEL}, None),
        ({"a\0": CHANNEL, "b": "c"}, None),
        ({}, None),
    ],
)
def test_the_channel_with_the_data_is_found(
    tmp_path: Path, channels: object, expected: str | None
) -> None:
    write_config(tmp_path, resourceconfig=RESOURCES, inputdataconfig=channels)
    source = "/opt/ml/input/config/inputdataconfig.json"
    folder = {"TRAINER_DATA_DIR": (f"/opt/ml/input/data/{expected}", source)} if expected else {}
    assert shown(read(tmp_path)) == FOLDERS | folder


def test_channel_variables_win_over_the_file(tmp_path: Path) -> None:
    write_config(tmp_path, inputdataconfig={"train": CHANNEL})
    channels = {
        "SM_CHANNEL_TESTING": "/opt/ml/input/data/testing",
        "SM_CHANNEL_TRAINING": "/opt/ml/input/data/training",
    }
    found = shown(read(tmp_path, **HOSTS, **channels))
    assert found["TRAINER_DATA_DIR"] == ("/opt/ml/input/data/training", "SM_CHANNEL_TRAINING")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("128", "128"),
        ("0.0001", "0.0001"),
        ('"adam"', "adam"),  # as the SDK writes it: JSON in a string
        ('"say \\"hi\\""', 'say "hi"'),
        ('"', '"'),
        ('"a" or "b"', '"a" or "b"'),
        (128, "128"),
        (1e-05, "1e-05"),
        (True, "true"),
        ([1, "a"], '[1, "a"]'),
    ],
)
def test_hyperparameters_of_the_file_become_settings(
    tmp_path: Path, value: object, text: str
) -> None:
    write_config(tmp_path, resourceconfig=RESOURCES, hyperparameters={"learning-rate": value})
    source = "/opt/ml/input/config/hyperparameters.json"
    assert shown(read(tmp_path))["TRAINER_LEARNING_RATE"] == (text, source)


def test_hyperparameters_of_variables_become_settings(tmp_path: Path) -> None:
    write_config(tmp_path, hyperparameters={"epochs": "1"})
    everything = '{"batch-size": "256", "learning-rate": "0.0001","communicator": "pure_nccl"}'
    one = {"SM_HP_LEARNING-RATE": "0.0002"}
    assert shown(read(tmp_path, **HOSTS, SM_HPS=everything, **one)) == FOLDERS | {
        "TRAINER_BATCH_SIZE": ("256", "SM_HPS"),
        "TRAINER_LEARNING_RATE": ("0.0002", "SM_HP_LEARNING-RATE"),
        "TRAINER_COMMUNICATOR": ("pure_nccl", "SM_HPS"),
    }


def test_what_sagemaker_adds_for_itself_is_left_out(tmp_path: Path) -> None:
    own = SAGEMAKERS_OWN | {"model_dir": "s3://bucket/model", "empty": "", "nothing": None}
    write_config(tmp_path, resourceconfig=RESOURCES, hyperparameters=own)
    assert shown(read(tmp_path)) == FOLDERS
    serialized = {name: json.dumps(value) for name, value in own.items()}
    write_config(tmp_path, hyperparameters=serialized | {"nothing": ""})
    assert shown(read(tmp_path)) == FOLDERS


def test_a_model_folder_that_is_no_bucket_counts(tmp_path: Path) -> None:
    found = read(tmp_path, **HOSTS, SM_HPS='{"model_dir":"/opt/ml/model/1"}')
    assert shown(found)["TRAINER_MODEL_DIR"] == ("/opt/ml/model/1", "SM_HPS")


def test_whatever_the_user_gave_wins(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TRAINER_SEED=1\nTRAINER_OPTIMIZER_FILE=optimizer\n")
    (tmp_path / "optimizer").write_text("sgd\n")
    write_config(tmp_path, hyperparameters={"x": "1"})
    found = read(
        tmp_path,
        **HOSTS,
        SM_HPS='{"epochs":2,"seed":2,"optimizer":"adam","threads":2,"strategy":"none"}',
        TRAINER_EPOCHS="1",
        TRAINER_THREADS="",
        TRAINER_STRATEGY_FILE="/nowhere",
        FAILURE_FILE="/f",
    )
    assert shown(found) == FOLDERS | {
        "TRAINER_EPOCHS": ("1", "environment"),
        "TRAINER_SEED": ("1", ".env"),
        "TRAINER_OPTIMIZER": ("sgd", "file optimizer"),
        "TRAINER_THREADS": ("2", "SM_HPS"),
    }
    assert found.get("FAILURE_FILE") == "/f"
    assert [problem.name for problem in found.problems] == ["TRAINER_STRATEGY_FILE"]


def test_the_first_system_in_the_order_of_belief_wins(tmp_path: Path) -> None:
    found = read(tmp_path, **HOSTS, AIP_MODEL_DIR="gs://b/model/", SKYPILOT_TASK_ID="sky-1")
    assert shown(found) == FOLDERS


def test_without_a_scheduler_nothing_changes(tmp_path: Path) -> None:
    plain = read_environ({"TRAINER_EPOCHS": "1"}, tmp_path, root=tmp_path)
    assert with_contract_settings(plain) == plain
    assert shown(read(tmp_path, SM_HPS='{"epochs":1}', SM_MODEL_DIR="/m")) == {}


BROKEN: list[tuple[Mapping[str, object], Mapping[str, str], str]] = [
    ({}, {"SM_HPS": "{"}, "SM_HPS"),
    ({}, {"SM_HPS": "[1]"}, "SM_HPS"),
    ({}, {"SM_HPS": '{"a":"\\u0000"}'}, "SM_HPS a"),
    ({}, {"SM_HPS": '{"a":"\\ud800"}'}, "SM_HPS a"),
    ({"hyperparameters": "no"}, {}, "/opt/ml/input/config/hyperparameters.json"),
    ({"inputdataconfig": "[]"}, {}, "/opt/ml/input/config/inputdataconfig.json"),
]


@pytest.mark.parametrize(("files", "texts", "name"), BROKEN)
@pytest.mark.parametrize("choice", ["auto", "sagemaker", "slrum"])
def test_what_cannot_be_read_is_a_problem_of_the_start(
    tmp_path: Path, files: Mapping[str, object], texts: Mapping[str, str], name: str, choice: str
) -> None:
    write_config(tmp_path, **files)
    (problem,) = read(tmp_path, **HOSTS, **texts, CLUSTER_SOURCE=choice).problems
    assert problem.name.replace(str(tmp_path), "") == name


@pytest.mark.parametrize(("files", "texts", "name"), BROKEN)
@pytest.mark.parametrize("choice", ["none", "worker_hosts", "vertex"])
def test_what_is_not_picked_cannot_fail_the_start(
    tmp_path: Path, files: Mapping[str, object], texts: Mapping[str, str], name: str, choice: str
) -> None:
    write_config(tmp_path, **files)
    assert read(tmp_path, **HOSTS, **texts, CLUSTER_SOURCE=choice).problems == (), name


def test_a_folder_that_is_picked_by_nobody_still_counts(tmp_path: Path) -> None:
    assert shown(read(tmp_path, **HOSTS, CLUSTER_SOURCE="none")) == FOLDERS


def test_explain_shows_values_and_sources(tmp_path: Path) -> None:
    found = read(tmp_path, **HOSTS, SM_HPS='{"api_key":"hunter2"}', SM_HP_EPOCHS="5")
    rows = explained_values(found, Answer())
    assert (rows["TRAINER_EPOCHS"].value, rows["TRAINER_EPOCHS"].source) == ("5", "SM_HP_EPOCHS")
    assert rows["SM_CURRENT_HOST"].value == "algo-1"
    assert rows["TRAINER_API_KEY"].value == "***"
    assert "hunter2" not in repr(rows)


def test_a_message_says_where_a_value_came_from(tmp_path: Path) -> None:
    assert read(tmp_path, **HOSTS, SM_HP_EPOCHS="5").label("TRAINER_EPOCHS") == (
        "TRAINER_EPOCHS (SM_HP_EPOCHS)"
    )


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
DOCUMENTS = st.dictionaries(st.text(), VALUES, max_size=5).map(json.dumps) | st.text(
    st.characters(exclude_categories=["Cs"])
)
ONE_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@ONE_FOLDER
@given(DOCUMENTS, DOCUMENTS)
def test_any_document_becomes_variables_or_a_problem(
    tmp_path: Path, channels: str, hyperparameters: str
) -> None:
    write_config(
        tmp_path,
        resourceconfig=RESOURCES,
        inputdataconfig=channels,
        hyperparameters=hyperparameters,
    )
    found = read(tmp_path)
    if found.problems:
        return
    for name, text in command_environment(found, None).items():
        assert name.isascii()
        assert "=" not in name
        assert "\0" not in name + text
