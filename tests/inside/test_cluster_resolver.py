"""TensorFlow's own resolver reads the cluster that the entrypoint makes of each contract.

The environments are the systems' published examples; tests/unit/entrypoint names their sources.
"""

import json

import pytest
import tensorflow as tf

from entrypoint.settings.environ import read_environ
from entrypoint.sources.resolve import resolve

TF_CONFIG = {
    "cluster": {"worker": ["localhost:12345", "localhost:23456"]},
    "task": {"type": "worker", "index": 0},
}
RESOURCES = {
    "current_host": "algo-1",
    "hosts": ["algo-1", "algo-2", "algo-3"],
    "network_interface_name": "eth1",
}
CLUSTER_SPEC = {
    "cluster": {
        "workerpool0": ["cmle-training-workerpool0-ab-0:2222"],
        "workerpool1": [
            "cmle-training-workerpool1-ab-0:2222",
            "cmle-training-workerpool1-ab-1:2222",
        ],
        "workerpool3": ["cmle-training-workerpool3-ab-0:2222"],
    },
    "environment": "cloud",
    "task": {"type": "workerpool1", "index": 1, "trial": "TRIAL_ID"},
    "job": {},
}
VERTEX = {
    "chief": ["cmle-training-workerpool0-ab-0:2222"],
    "worker": ["cmle-training-workerpool1-ab-0:2222", "cmle-training-workerpool1-ab-1:2222"],
}
EVALUATOR = CLUSTER_SPEC | {"task": {"type": "workerpool3", "index": 0}}

CONTRACTS = [
    pytest.param(
        {"TF_CONFIG": json.dumps(TF_CONFIG)}, TF_CONFIG["cluster"], ("worker", 0), id="tf_config"
    ),
    pytest.param(
        {"WORKER_HOSTS": "10.1.10.58:12345,10.1.10.250:12345", "WORKER_INDEX": "1"},
        {"worker": ["10.1.10.58:12345", "10.1.10.250:12345"]},
        ("worker", 1),
        id="worker_hosts",
    ),
    pytest.param(
        {"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-1"},
        {"worker": ["algo-1:8890", "algo-2:8890"]},
        ("worker", 0),
        id="sagemaker",
    ),
    pytest.param(
        {},
        {"worker": ["algo-1:8890", "algo-2:8890", "algo-3:8890"]},
        ("worker", 0),
        id="sagemaker's file",
    ),
    pytest.param({"CLUSTER_SPEC": json.dumps(CLUSTER_SPEC)}, VERTEX, ("worker", 1), id="vertex"),
    pytest.param(
        {"CLUSTER_SPEC": json.dumps(EVALUATOR)}, VERTEX, ("evaluator", 0), id="vertex's evaluator"
    ),
    pytest.param(
        {
            "SKYPILOT_NODE_IPS": "1.2.3.4\n1.2.3.5",
            "SKYPILOT_NODE_RANK": "1",
            "SKYPILOT_NUM_NODES": "2",
        },
        {"worker": ["1.2.3.4:2222", "1.2.3.5:2222"]},
        ("worker", 1),
        id="skypilot",
    ),
    pytest.param(
        {
            "SLURM_PROCID": "1",
            "SLURM_STEP_NUM_TASKS": "5",
            "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
            "SLURM_STEP_NODELIST": "t02n13,t02n41,t02n43",
        },
        {"worker": ["t02n13:8888", "t02n13:8889", "t02n41:8888", "t02n41:8889", "t02n43:8888"]},
        ("worker", 1),
        id="slurm",
    ),
    pytest.param(
        {
            "PET_NNODES": "2",
            "PET_NODE_RANK": "1",
            "PET_MASTER_ADDR": "test-job-node-0-0.test-job",
            "PET_MASTER_PORT": "29500",
        },
        {"worker": ["test-job-node-0-0.test-job:2222", "test-job-node-0-1.test-job:2222"]},
        ("worker", 1),
        id="kubeflow trainer",
    ),
    pytest.param(
        {
            "WORKER_HOSTS": "example-job-0.headless-svc example-job-1.headless-svc",
            "JOB_COMPLETION_INDEX": "1",
        },
        {"worker": ["example-job-0.headless-svc:2222", "example-job-1.headless-svc:2222"]},
        ("worker", 1),
        id="indexed job",
    ),
    pytest.param(
        {"WORKER_HOSTS": "worker-1,worker-2", "SWARM_TASK_SLOT": "2"},
        {"worker": ["worker-1:2222", "worker-2:2222"]},
        ("worker", 1),
        id="swarm",
    ),
]


@pytest.mark.parametrize(("environ", "cluster", "task"), CONTRACTS)
def test_tensorflow_reads_the_same_cluster(tmp_path, monkeypatch, environ, cluster, task):
    if not environ:
        path = tmp_path / "opt/ml/input/config/resourceconfig.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(RESOURCES))

    def find_nothing(found):
        raise AssertionError(found)

    answer = resolve(read_environ(environ, tmp_path, root=tmp_path), find_nothing)
    monkeypatch.setenv("TF_CONFIG", answer.tf_config_text)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert resolver.cluster_spec().as_dict() == cluster
    assert (resolver.task_type, resolver.task_id) == task
