"""`export kubernetes` prints what Kubernetes' schemas accept."""

from __future__ import annotations

import jsonschema
import pytest
import yaml

from harness.kubernetes_forms import VERSIONS, validate

OPTIONS = (
    (),
    ("--workers", "4", "--gpus", "1"),
    ("--workers", "1", "--storage", "nfs:50Gi", "--name", "on", "--env", "A=yes", "--", "sh", "-c"),
)


@pytest.fixture
def documents(exported):
    def read(*arguments):
        found = yaml.safe_load_all(exported("kubernetes", *arguments))
        return {document["kind"]: document for document in found}

    return read


@pytest.fixture
def pod(documents):
    return lambda *arguments: documents(*arguments)["Job"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", OPTIONS)
def test_kubernetes_accepts_all_of_it(documents, options, version):
    found = documents(*options)
    assert set(found) == {"Job", "Service", "PersistentVolumeClaim"}
    for document in found.values():
        validate(document, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_forms_refuse_misspelt_fields(documents, version):
    job = documents()["Job"]
    job["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(jsonschema.ValidationError, match="enableServiceLink"):
        validate(job, version)


def test_each_worker_has_a_pod_and_a_name(documents):
    found = documents("--workers", "3", "--name", "mine")
    job = found["Job"]["spec"]
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (3, 3, "Indexed")
    pod = job["template"]["spec"]
    assert variables(pod)["WORKER_HOSTS"] == "mine-0.mine,mine-1.mine,mine-2.mine"
    assert pod["subdomain"] == found["Service"]["metadata"]["name"] == "mine"
    assert found["Service"]["spec"]["selector"] == {"job-name": "mine"}


def test_workers_find_each_other_before_they_are_ready(documents):
    service = documents()["Service"]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)


def test_results_outlive_the_pods(documents):
    found = documents("--storage", "nfs:50Gi")
    claim = found["PersistentVolumeClaim"]
    assert claim["spec"]["storageClassName"] == "nfs"
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    volumes = {volume["name"]: volume for volume in volumes_of(found)}
    assert volumes["runs"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def volumes_of(found):
    return found["Job"]["spec"]["template"]["spec"]["volumes"]


def test_without_a_class_the_cluster_chooses_the_storage(documents):
    assert "storageClassName" not in documents()["PersistentVolumeClaim"]["spec"]


def test_an_eviction_is_no_failure_and_a_wrong_configuration_is_final(documents):
    eviction, final = documents()["Job"]["spec"]["podFailurePolicy"]["rules"]
    assert eviction["action"] == "Ignore"
    assert eviction["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert final["action"] == "FailJob"
    assert final["onExitCodes"]["values"] == [78, 126, 127]


def test_the_others_outwait_a_dead_node(pod):
    spec = pod()
    given_up = 50 + max(toleration["tolerationSeconds"] for toleration in spec["tolerations"])
    assert {toleration["key"].rpartition("/")[2] for toleration in spec["tolerations"]} == {
        "not-ready",
        "unreachable",
    }
    assert int(variables(spec)["RENDEZVOUS_TIMEOUT"]) > 10 * given_up
    assert int(variables(spec)["STARTUP_TIMEOUT"]) > 10 * given_up


def test_the_worker_stops_before_kubernetes_kills_it(pod):
    spec = pod()
    assert int(variables(spec)["STOP_GRACE_SECONDS"]) < spec["terminationGracePeriodSeconds"]


def test_everything_that_is_written_is_a_volume(pod):
    spec = pod()
    (worker,) = spec["containers"]
    assert worker["securityContext"]["readOnlyRootFilesystem"]
    mounted = {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert mounted == {"/runs", "/data", "/tmp", "/dev/shm"}
    assert spec["securityContext"]["fsGroup"] == 1000


def test_other_services_set_no_variables(pod):
    assert pod()["enableServiceLinks"] is False


def test_gpus_are_asked_for_and_checked(pod):
    spec = pod("--gpus", "2")
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert variables(spec)["GPUS_PER_WORKER"] == "2"
    assert spec["containers"][0]["image"] == "cluster-trainer:gpu"
    assert "GPUS_PER_WORKER" not in variables(pod())


def test_the_users_variables_take_precedence(pod):
    entries = pod("--env", "STARTUP_TIMEOUT=7")["containers"][0]["env"]
    assert [entry["value"] for entry in entries if entry["name"] == "STARTUP_TIMEOUT"] == ["7"]


def variables(pod):
    return {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
