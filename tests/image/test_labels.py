import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
OCI = "org.opencontainers.image."


def test_version_label_is_the_projects_version(workbench):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert workbench.inspect_image().labels[OCI + "version"] == version


def test_image_carries_its_title_and_revision(workbench):
    labels = workbench.inspect_image().labels
    assert labels[OCI + "title"] == "cluster-trainer"
    assert labels[OCI + "licenses"] == "Apache-2.0"
    assert labels[OCI + "revision"]


def test_image_brings_its_licence_and_whose_work_is_in_it(run_bash):
    for name in ("LICENSE", "NOTICE"):
        assert run_bash(f"cat /usr/share/doc/cluster-trainer/{name}") == (ROOT / name).read_text()


def test_image_tells_when_and_on_which_base_it_was_built(workbench):
    labels = workbench.inspect_image().labels
    assert datetime.fromisoformat(labels[OCI + "created"]) <= datetime.now(UTC)
    assert labels[OCI + "base.name"]


def test_version_variable_equals_the_label(workbench, run_bash):
    labels = workbench.inspect_image().labels
    shown = run_bash('echo "$CLUSTER_TRAINER_VERSION $CLUSTER_TRAINER_REVISION"')
    assert shown.split() == [labels[OCI + "version"], labels[OCI + "revision"]]
