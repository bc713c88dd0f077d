"""`export jobset`, `trainjob` and `tfjob` print what the schemas of their projects accept.

The schemas of JobSet (v1alpha2) and TrainJob (v1alpha1) are those of kubeflow-trainer-api. It drops
unknown fields, so each document is compared with its round trip. The TFJob's fields are listed
here. The Jobs and pods are checked against Kubernetes' schemas (test_kubernetes.py).
"""

from __future__ import annotations

import pytest
import yaml

from harness.kubernetes_forms import VERSIONS, validate
from harness.pods import of_tfjob, of_trainjob, trainjobs_jobset

CONTROLLERS = ("jobset", "trainjob", "tfjob")
OPTIONS = (
    (),
    ("--workers", "4", "--gpus", "1", "--env", "A=$B"),
    ("--workers", "1", "--storage", "nfs:50Gi", "--name", "on", "--", "sh", "-c", "echo $HOME"),
)
# From kubeflow-training 1.9.4, the models of kubeflow.org/v1. The operator's code of that version
# accepts the policies.
TFJOB_SPEC = {"enableDynamicWorker", "runPolicy", "successPolicy", "tfReplicaSpecs"}
RUN_POLICY = {
    *("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "managedBy", "schedulingPolicy"),
    *("suspend", "ttlSecondsAfterFinished"),
}
REPLICA_SPEC = {"replicas", "restartPolicy", "template"}


@pytest.fixture
def documents(exported):
    def read(kind, *arguments):
        found = yaml.safe_load_all(exported(kind, *arguments))
        return {document["kind"]: document for document in found}

    return read


@pytest.fixture
def forms():
    from kubeflow_trainer_api import models  # noqa: PLC0415 -- it takes 0.3 s

    return {
        "JobSet": models.JobsetV1alpha2JobSet,
        "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
        "TrainJob": models.TrainerV1alpha1TrainJob,
        "PersistentVolumeClaim": models.IoK8sApiCoreV1PersistentVolumeClaim,
    }


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_api_gives_back_every_field(documents, forms, kind, options):
    found = documents(kind, *options)
    expected = {"jobset": {"JobSet"}, "trainjob": {"TrainingRuntime", "TrainJob"}}[kind]
    assert set(found) == expected | {"PersistentVolumeClaim"}
    for name, document in found.items():
        assert forms[name].from_dict(document).to_dict() == document


def test_the_api_drops_misspelt_fields(documents, forms):
    jobset = documents("jobset")["JobSet"]
    jobset["spec"]["network"]["enableDNSHostname"] = True
    assert forms["JobSet"].from_dict(jobset).to_dict() != jobset


@pytest.mark.parametrize("options", OPTIONS)
def test_a_tfjob_has_only_fields_that_are_written_down(documents, options):
    found = documents("tfjob", *options)
    assert set(found) == {"TFJob", "PersistentVolumeClaim"}
    spec = found["TFJob"]["spec"]
    assert set(spec) <= TFJOB_SPEC
    assert set(spec["runPolicy"]) <= RUN_POLICY
    (worker,) = spec["tfReplicaSpecs"].values()
    assert set(worker) == REPLICA_SPEC
    assert (spec["successPolicy"], worker["restartPolicy"]) == ("AllWorkers", "ExitCode")


def job_of(kind, found):
    """Return the Job that the controller makes. A TFJob's pods are wrapped in a Job."""
    if kind == "tfjob":
        (worker,) = found["TFJob"]["spec"]["tfReplicaSpecs"].values()
        spec = {"template": worker["template"]}
    else:
        jobset = found["JobSet"] if kind == "jobset" else trainjobs_jobset(found)
        (job,) = jobset["spec"]["replicatedJobs"]
        spec = job["template"]["spec"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", CONTROLLERS)
@pytest.mark.parametrize("options", OPTIONS)
def test_kubernetes_accepts_the_jobs_and_pods(documents, kind, options, version):
    found = documents(kind, *options)
    validate(job_of(kind, found), version)
    validate(found["PersistentVolumeClaim"], version)


@pytest.mark.parametrize("kind", CONTROLLERS)
def test_the_pods_are_those_of_a_plain_job(documents, kind):
    """Except for the fields that the controller decides."""
    pod = job_of(kind, documents(kind))["spec"]["template"]["spec"]
    plain = documents("kubernetes")["Job"]["spec"]["template"]["spec"]
    decided = ("containers", "subdomain", "restartPolicy")
    assert without(pod, *decided) == without(plain, *decided)
    (container,), (of_plain,) = pod["containers"], plain["containers"]
    decided = ("name", "env", "readinessProbe")
    assert without(container, *decided) == without(of_plain, *decided)


def without(fields, *names):
    return {name: value for name, value in fields.items() if name not in names}


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_an_eviction_is_no_failure_and_a_wrong_configuration_is_final(documents, kind):
    found = documents(kind)
    job = job_of(kind, found)["spec"]
    plain = documents("kubernetes")["Job"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    plain["podFailurePolicy"]["rules"][1]["onExitCodes"]["containerName"] = container["name"]
    assert job["podFailurePolicy"] == plain["podFailurePolicy"]
    assert job["backoffLimit"] == plain["backoffLimit"]


def test_a_jobsets_workers_have_its_pods_names(documents):
    jobset = documents("jobset", "--name", "mine")["JobSet"]
    (job,) = jobset["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    hosts = next(one["value"] for one in container["env"] if one["name"] == "WORKER_HOSTS")
    assert hosts == "mine-worker-0-0.mine,mine-worker-0-1.mine"
    assert (job["name"], job["replicas"]) == ("worker", 1)
    assert jobset["spec"]["network"]["subdomain"] == "mine"


def test_a_trainjob_refers_to_its_own_runtime(documents):
    found = documents("trainjob", "--name", "mine", "--workers", "3", "--env", "A=1", "--", "true")
    job, runtime = found["TrainJob"]["spec"], found["TrainingRuntime"]
    reference = {"kind": "TrainingRuntime", "name": runtime["metadata"]["name"]}
    assert job["runtimeRef"] == reference
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 3, "torch": {}}
    first, *_ = of_trainjob(found)
    assert first.variables["PET_MASTER_ADDR"] == "mine-node-0-0.mine"
    assert {"name": "A", "value": "1"} in first.container["env"]
    assert first.container["args"] == ["true"]


def test_a_tfjob_retries_a_lost_peer_and_waits_for_no_readiness(documents):
    first, *_ = of_tfjob(documents("tfjob"))
    variables = {entry["name"]: entry["value"] for entry in first.container["env"]}
    assert int(variables["PEER_LOST_EXIT_CODE"]) >= 128
    assert "readinessProbe" not in first.container
    assert first.container["name"] == "tensorflow"


@pytest.mark.parametrize("kind", CONTROLLERS)
def test_the_schedulers_own_variables_are_refused(refused, kind):
    for name in ("PET_NNODES", "TF_CONFIG", "JOB_COMPLETION_INDEX"):
        assert f"--env {name}" in refused(kind, "--env", f"{name}=1")
