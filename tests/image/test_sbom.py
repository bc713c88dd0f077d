"""`make sbom` lists the image's contents: Python's and Debian's packages, and the image's name."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long  # 10 s of CPU time
def test_the_list_names_what_is_installed_and_what_it_is_of(workbench):
    # check=True: the script itself fails if the document does not follow CycloneDX's schema.
    written = subprocess.run(
        [ROOT / "scripts/sbom.sh"],
        env=os.environ | {"IMAGE": workbench.image},
        check=True,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    file = ROOT / written.stdout.partition(":")[0]
    document = json.loads(file.read_text())
    packages = {entry["name"]: entry["purl"] for entry in document["components"]}
    labels = workbench.inspect_image().labels
    version = labels["org.opencontainers.image.version"]
    about = document["metadata"]["component"]
    assert (about["type"], about["name"], about["version"]) == (
        "container",
        "cluster-trainer",
        version,
    )
    assert packages["keras"].startswith("pkg:pypi/keras@3.")
    assert packages["pip"].startswith("pkg:pypi/pip@")
    assert packages["tini"].startswith("pkg:deb/")
    assert packages["libc6"].startswith("pkg:deb/")
    assert "cyclonedx-bom" not in packages
