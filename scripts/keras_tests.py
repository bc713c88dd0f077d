"""Runs Keras's own tests in the image: against Keras as published, patched, and with the engine.

`make keras-tests` runs the tests of FOLDERS, from the source distribution of the image's version,
in a container of IMAGE. Arguments are pytest's, for all three runs. It exits with 1 if a test
passes with the published Keras, but not with the image's.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

FOLDERS = (
    "trainers",
    "callbacks",
    "backend/tensorflow",
    "models",
    "distillation",
    "optimizers",
    "losses",
    "metrics",
    "random",
    "saving",
    "legacy/saving",
)
"""The parts of keras/src that are related to `fit`."""
PLACE = Path(".build/keras-tests")
NESTED = "keras_src"
TMP = "/tmp:mode=1777,exec"  # noqa: S108  the container's own
PUBLISHED, REPAIRED, ENGINE = "published", "repaired", "engine"
WAYS = {
    PUBLISHED: {"CLUSTER_TRAINER_ENGINE": "off"},
    REPAIRED: {"CLUSTER_TRAINER_ENGINE": "off"},
    # A sequence of tests is not a script that could resume, so there are no checkpoints.
    ENGINE: {"TRAINER_CHECKPOINT_STEPS": "0"},
}
"""Each Keras that is tested -> its environment."""
CONFTEST = '''
"""Replaces Keras's own conftest.py, which its source distribution lacks."""

import os
import sys

os.environ["JAX_DEFAULT_DTYPE_BITS"] = "32"  # as in Keras's own
sys.path.append("/extras")  # behind the image's own packages

import pytest
from keras.src.backend import backend


def pytest_configure(config):
    config.addinivalue_line("markers", "requires_trainable_backend: TensorFlow is one")


def skip_if_backend(given, reason):
    return pytest.mark.skipif(backend() == given, reason=reason)


def pytest_collectreport(report):
    sys.modules.pop("torch", None)  # SciPy looks there
'''
NO_TORCH = '''
"""Stands in for PyTorch, which is not installed: a test that uses it is skipped."""

import os

import pytest

if "PYTEST_CURRENT_TEST" in os.environ:
    pytest.skip("PyTorch is not here")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    pytest.skip("PyTorch is not here")
'''
Outcomes = dict[str, str]


def main(arguments: list[str]) -> int:
    """Run all tests, print the results, and return the exit code."""
    version = locked("keras")
    prepare(version)
    print(f"Keras {version}: tests of {', '.join(FOLDERS)}", flush=True)
    ended = {}
    for way in WAYS:
        run(way, arguments)
        ended[way] = outcomes(PLACE / "reports" / f"{way}.xml")
        counts = Counter(ended[way].values())
        print(f"{way}: {', '.join(f'{counts[one]} {one}' for one in sorted(counts))}", flush=True)
    differ = [name for way in WAYS for name in lost(ended[PUBLISHED], ended[way])]
    for name in sorted(set(differ)):
        print(f"  {name}: {', '.join(f'{way} {ended[way].get(name)}' for way in WAYS)}")
    failed = [name for name, outcome in ended[PUBLISHED].items() if outcome == "failed"]
    for name in failed:
        print(f"  fails with the published Keras, too: {name}")
    return int(bool(differ) or not ended[PUBLISHED])


def locked(package: str) -> str:
    """Return the version of one of the image's packages."""
    lock = Path("requirements/cpu.txt").read_text()
    found = re.search(rf"^{package}==(\S+)", lock, re.MULTILINE)
    if found is None:
        sys.exit(f"requirements/cpu.txt has no {package}")
    return found[1]


def prepare(version: str) -> None:
    """Fetch the source distribution and the packages of its tests; put the tests apart."""
    source, ready = PLACE / f"keras-{version}", PLACE / f"ready-{version}"
    if ready.exists():
        return
    shutil.rmtree(PLACE, ignore_errors=True)  # of another version, or incomplete
    pip = [".venv/bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
    one = ["--no-deps", "--no-binary", "keras", f"keras=={version}"]
    subprocess.run([*pip, "download", "--dest", str(PLACE), *one], check=True)
    with tarfile.open(PLACE / f"keras-{version}.tar.gz") as archive:
        archive.extractall(PLACE, filter="data")
    tests = PLACE / "tests"
    for file in source.glob("keras/src/**/*_test.py"):
        # Below a folder. Otherwise a test's parent would be a second module `random`.
        moved = tests / NESTED / file.relative_to(source / "keras/src")
        moved.parent.mkdir(parents=True, exist_ok=True)
        file.rename(moved)
    (tests / "conftest.py").write_text(CONFTEST)
    for lock, where in (("keras-tests", "extras"), ("inside", "tools")):
        listed = ["--no-deps", "--require-hashes", "--requirement", f"requirements/{lock}.txt"]
        subprocess.run([*pip, "install", *listed, "--target", str(PLACE / where)], check=True)
    (PLACE / "extras/torch.py").write_text(NO_TORCH)
    (PLACE / "reports").mkdir(exist_ok=True)
    ready.touch()


def run(way: str, arguments: list[str]) -> None:
    """Run the tests in a container, which writes a report, also of tests that fail."""
    here, version = PLACE.resolve(), locked("keras")
    volumes = {
        here / "tests": "/tests",
        here / "extras": "/extras",
        here / "tools": "/tools",
        here / f"keras-{version}": "/published",
    }
    path = ["/published", "/tools"] if way == PUBLISHED else ["/tools"]
    environ = {**WAYS[way], "PYTHONPATH": ":".join(path)}
    options = ["--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir=/tests"]
    options += ["--quiet", "--numprocesses=auto", "--timeout=600", f"--junitxml=/reports/{way}.xml"]
    command = [
        *["docker", "run", "--rm", "--network", "none", "--user", f"{os.getuid()}:{os.getgid()}"],
        *["--tmpfs", TMP, "--env", "MAX_RESTARTS=0", "--workdir", "/tests"],
        *(part for pair in environ.items() for part in ("--env", "=".join(pair))),
        *(part for pair in volumes.items() for part in ("--volume", f"{pair[0]}:{pair[1]}:ro")),
        *["--volume", f"{here}/reports:/reports", os.environ.get("IMAGE", "cluster-trainer:cpu")],
        *["python", "-m", "pytest", *options, *(f"{NESTED}/{one}" for one in FOLDERS), *arguments],
    ]
    report = PLACE / "reports" / f"{way}.xml"
    report.unlink(missing_ok=True)
    with (PLACE / f"{way}.log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if not report.exists():
        sys.exit(f"{way}: no test was run; {PLACE}/{way}.log says why")


def outcomes(report: Path) -> Outcomes:
    """Return the result of each test, by its name."""
    found = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 pytest has written it
        kinds = {child.tag for child in case}
        name = f"{case.get('classname')}::{case.get('name')}"
        ends_badly = kinds & {"failure", "error"}
        found[name] = "failed" if ends_badly else "skipped" if "skipped" in kinds else "passed"
    return found


def lost(published: Outcomes, image: Outcomes) -> list[str]:
    """Return the tests that pass with the published Keras, but not with the image's."""
    passed = [name for name, outcome in published.items() if outcome == "passed"]
    return [name for name in passed if image.get(name) != "passed"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
