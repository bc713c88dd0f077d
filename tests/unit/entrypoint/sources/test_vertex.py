"""Google Vertex AI's CLUSTER_SPEC and folders.

PUBLISHED is the example of https://cloud.google.com/vertex-ai/docs/training/distributed-training
("CLUSTER_SPEC example") without its parameter servers. PUBLISHED_TF_CONFIG is from the same page.
CHIEF and ALONE are from tests/unit/aiplatform of https://github.com/googleapis/python-aiplatform
(test_cloud_profiler.py). The folders are those of `base_output_directory` in
google/cloud/aiplatform/v1/custom_job.proto.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.settings.environ import Value
from entrypoint.sources.vertex import find, settings
from harness.contracts import check_any, refusal, view

PUBLISHED = """
{
   "cluster":{
      "workerpool0":["cmle-training-workerpool0-ab-0:2222"],
      "workerpool1":["cmle-training-workerpool1-ab-0:2222", "cmle-training-workerpool1-ab-1:2222"],
      "workerpool3":[
         "cmle-training-workerpool3-ab-0:2222",
         "cmle-training-workerpool3-ab-1:2222",
         "cmle-training-workerpool3-ab-2:2222"
      ]
   },
   "environment":"cloud",
   "task":{"type":"workerpool0", "index":0, "trial":"TRIAL_ID"},
   "job":{}
}
"""
PARAMETER_SERVERS = ["cmle-training-workerpool2-ab-0:2222", "cmle-training-workerpool2-ab-1:2222"]
PUBLISHED_TF_CONFIG = {
    "cluster": {
        "chief": ["training-workerpool0-x-0:2222"],
        "worker": ["training-workerpool1-x-0:2222", "training-workerpool1-x-1:2222"],
    },
    "environment": "cloud",
    "task": {"cloud": "y", "index": 0, "trial": "1", "type": "worker"},
}
CHIEF = (
    '{"cluster":{"workerpool0":["cmle-training-workerpool0-1d969d3ba6-0:2222"],'
    '"workerpool1":["cmle-training-workerpool1-1d969d3ba6-0:2222"]},"environment":"cloud",'
    '"task":{"type":"workerpool0","index":0}}'
)
ALONE = (
    '{"cluster":{"chief":["localhost:1234"]},"environment":"cloud",'
    '"task":{"type":"chief","index":0}}'
)


def published(task_type: str, index: object) -> str:
    document = json.loads(PUBLISHED)
    return json.dumps(document | {"task": {"type": task_type, "index": index}})


@pytest.mark.parametrize(
    ("pool", "index", "task_type", "rank"),
    [
        ("workerpool0", 0, "chief", 0),
        ("workerpool1", 0, "worker", 1),
        ("workerpool1", "1", "worker", 2),
        ("workerpool3", 2, "evaluator", None),
    ],
)
def test_pools_become_chief_workers_and_evaluators(
    pool: str, index: object, task_type: str, rank: int | None
) -> None:
    found = find(view(CLUSTER_SPEC=published(pool, index)), 2222)
    assert found.rank == rank
    assert found.tf_config() == {
        "cluster": {
            "chief": ["cmle-training-workerpool0-ab-0:2222"],
            "worker": [
                "cmle-training-workerpool1-ab-0:2222",
                "cmle-training-workerpool1-ab-1:2222",
            ],
        },
        "task": {"type": task_type, "index": int(str(index))},
    }


def test_the_chief_of_two() -> None:
    assert find(view(CLUSTER_SPEC=CHIEF), 2222).tf_config() == {
        "cluster": {
            "chief": ["cmle-training-workerpool0-1d969d3ba6-0:2222"],
            "worker": ["cmle-training-workerpool1-1d969d3ba6-0:2222"],
        },
        "task": {"type": "chief", "index": 0},
    }


def test_a_machine_by_itself_is_a_cluster_of_one() -> None:
    assert find(view(CLUSTER_SPEC=ALONE), 2222).tf_config() == {
        "cluster": {"chief": ["localhost:1234"]},
        "task": {"type": "chief", "index": 0},
    }


def test_refuses_parameter_servers_by_name() -> None:
    document = json.loads(PUBLISHED)
    document["cluster"]["workerpool2"] = PARAMETER_SERVERS
    (problem,) = refusal(find, view(CLUSTER_SPEC=json.dumps(document)))
    assert problem.name == "CLUSTER_SPEC cluster.workerpool2"
    assert problem.advice.startswith("Parameter servers (workerpool2, or a Reduction Server)")


def with_change(**change: object) -> str:
    return json.dumps(json.loads(CHIEF) | change)


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("", "", "a JSON object"),
        ("[]", "", "a JSON object"),
        (with_change(cluster=None), "cluster", '{"workerpool1":["10.1.10.58:2222"]}'),
        (with_change(task=None), "task", '{"type":"workerpool1","index":0}'),
        (
            with_change(task={"type": "workerpool1", "index": 1}),
            "task.index",
            "of type workerpool1",
        ),
        (with_change(task={"type": "workerpool2", "index": 0}), "task.type", "or workerpool3"),
        (with_change(task={"type": "worker", "index": 0}), "task.type", "workerpool0, workerpool1"),
        (with_change(cluster={"workerpool1": ["a:1"]}), "task.type", "in the cluster: workerpool1"),
        (
            with_change(cluster={"workerpool0": ["a:1"], "workerpool1": ["b:1", "c:x"]}),
            "cluster.workerpool1[1]",
            "host:port",
        ),
        (with_change(cluster={"workerpool0": ["a:1", "b:1"]}), "cluster.workerpool0", "one chief"),
        (with_change(cluster={"workerpool9": ["a:1"]}), "cluster.workerpool9", "workerpool3"),
        (
            with_change(cluster={"workerpool0": ["a:1"], "chief": ["b:1"]}),
            "cluster.chief",
            "one chief",
        ),
    ],
)
def test_refuses_in_its_own_words(text: str, place: str, says: str) -> None:
    problem = refusal(find, view(CLUSTER_SPEC=text))[0]
    assert problem.name == f"CLUSTER_SPEC {place}".strip()
    assert says in problem.accepted


def test_agrees_with_the_tf_config_that_vertex_sets_too(answer: Callable) -> None:
    hosts = PUBLISHED_TF_CONFIG["cluster"]
    pools = {"workerpool0": hosts["chief"], "workerpool1": hosts["worker"]}
    task = {"type": "workerpool1", "index": 0, "trial": "1"}
    spec = json.dumps({"cluster": pools, "task": task, "environment": "cloud"})
    found = answer({"TF_CONFIG": json.dumps(PUBLISHED_TF_CONFIG), "CLUSTER_SPEC": spec})
    assert found.resolution.source == "TF_CONFIG"
    assert json.loads(found.tf_config_text) == PUBLISHED_TF_CONFIG


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("gs://bucket/base/model/", "/gcs/bucket/base/model/"),
        ("gs://bucket", "/gcs/bucket"),
        ("/mnt/nfs/model", "/mnt/nfs/model"),
    ],
)
def test_a_bucket_is_a_folder_below_gcs(given: str, expected: str) -> None:
    assert settings(view(AIP_MODEL_DIR=given)) == {
        "TRAINER_MODEL_DIR": Value(expected, "AIP_MODEL_DIR")
    }


def test_results_belong_to_the_checkpoints() -> None:
    base = "gs://bucket/job"
    folders = {
        "AIP_MODEL_DIR": f"{base}/model/",
        "AIP_CHECKPOINT_DIR": f"{base}/checkpoints/",
        "AIP_TENSORBOARD_LOG_DIR": f"{base}/logs/",
    }
    assert settings(view(**folders)) == {
        "TRAINER_MODEL_DIR": Value("/gcs/bucket/job/model/", "AIP_MODEL_DIR"),
        "TRAINER_RUN_DIR": Value("/gcs/bucket/job/checkpoints/", "AIP_CHECKPOINT_DIR"),
    }


def test_nothing_set_is_nothing() -> None:
    assert find(view(), 2222) is None
    assert settings(view(AIP_MODEL_DIR="")) == {}


POOLS = st.sampled_from(["workerpool0", "workerpool1", "workerpool2", "workerpool3", "chief", "x"])
ADDRESSES = st.sampled_from(["a:1", "b:2", "c", "[::1]:3", "d:0", "", "e:1"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "cluster": st.dictionaries(POOLS, st.lists(ADDRESSES, max_size=3) | ANYTHING, max_size=4),
        "task": st.fixed_dictionaries({"type": POOLS, "index": st.integers(-1, 2)}) | ANYTHING,
    },
    optional={"environment": ANYTHING, "job": ANYTHING},
)


@given(DOCUMENTS | ANYTHING)
def test_any_document_is_resolved_or_refused(document: object) -> None:
    check_any(find, view(CLUSTER_SPEC=json.dumps(document)))


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    assert check_any(find, view(CLUSTER_SPEC=text)) is None


@given(st.data(), st.integers(1, 5))
def test_right_documents_are_accepted(data: st.DataObject, workers: int) -> None:
    cluster = {"workerpool0": ["h:1"], "workerpool1": [f"w{i}:2" for i in range(workers)]}
    pool = data.draw(st.sampled_from(list(cluster)))
    index = data.draw(st.integers(0, len(cluster[pool]) - 1))
    task = {"type": pool, "index": index}
    found = check_any(find, view(CLUSTER_SPEC=json.dumps({"cluster": cluster, "task": task})))
    assert list(found.spec.to_json().values()) == list(cluster.values())
    assert found.rank == (0 if pool == "workerpool0" else index + 1)
