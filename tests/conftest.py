"""Fixtures of the tests that use the Docker engine, and the logs of a test that failed."""

import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from harness.ended import Ended, wait_for_end
from harness.waiting import logs_of
from harness.workbench import Workbench

DEFAULT_IMAGE = "cluster-trainer:cpu"
PROJECT = Path(__file__).parents[1]
WORKBENCH = pytest.StashKey[Workbench]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the chaos tests, which `make chaos` and `make soak` use."""
    group = parser.getgroup("chaos")
    group.addoption("--chaos-table", metavar="FILE", help="write what was measured into this file")
    group.addoption("--report-picture", metavar="FILE", help="write a picture of a report there")
    group.addoption("--jax-image", metavar="IMAGE", help="with Keras on JAX; unset: it is built")
    group.addoption("--soak-minutes", type=float, default=1, help="how long the soak kills workers")


@pytest.fixture(scope="session", autouse=True)
def _state_of_local_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the state of local clusters out of the home of the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def workbench(request: pytest.FixtureRequest) -> Iterator[Workbench]:
    """Yield the session's place on the engine; fail at its end if anything is left there."""
    client = docker.from_env()
    bench = Workbench(client, os.environ.get("IMAGE") or DEFAULT_IMAGE)
    request.config.stash[WORKBENCH] = bench
    yield bench
    leftovers = bench.leftovers()
    client.close()
    assert not leftovers, f"the tests left behind: {leftovers}"


@pytest.fixture(scope="session")
def image_with_r() -> str:
    """Build the image with R and return its name; all but R comes from the build's cache."""
    subprocess.run(["scripts/build.sh", "cpu-r"], cwd=PROJECT, check=True)
    return "cluster-trainer:cpu-r"


@pytest.fixture
def run_container(workbench: Workbench) -> Iterator[Callable[..., Container]]:
    """Start containers of the image that are removed when the test ends."""
    started: list[Container] = []

    def run(*command: str, **options: object) -> Container:
        started.append(workbench.start(*command, **options))
        return started[-1]

    yield run
    for container in started:
        container.remove(force=True, v=True)


@pytest.fixture
def run_to_end(run_container: Callable[..., Container]) -> Callable[..., Ended]:
    """Run a container of the image until it ends."""

    def run(*command: str, **options: object) -> Ended:
        return wait_for_end(run_container(*command, **options))

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs of the session's containers with a test that failed."""
    report = yield
    bench: Any = item.config.stash.get(WORKBENCH, None)
    if report.failed and bench:
        report.sections += [
            (f"container {container.name}", logs_of(container)[-10_000:])
            for container in bench.containers()
        ]
    return report
