"""Fixtures that start clusters. A cluster that many tests read runs once per session."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from harness.cluster import ClusterRun, RunningCluster, start_cluster
from harness.compose import Compose
from harness.packages import as_overlays
from harness.peers import Peers, make_peers
from harness.workbench import Workbench

MAX_SECONDS = 300


@pytest.fixture(scope="session")
def begin(
    workbench: Workbench, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., RunningCluster]:
    """Start `up` with variables, in its own folder and project; `start` also ends it."""

    def run(**environ: object) -> RunningCluster:
        project = workbench.new_name("cluster")
        settings = {"COMPOSE_PROJECT_NAME": project, "IMAGE": workbench.image} | environ
        folder = tmp_path_factory.mktemp(project)
        overlays = [*as_overlays(workbench.packages, folder), environ.get("OVERLAYS", "")]
        settings["OVERLAYS"] = " ".join(map(str, overlays)).strip()
        return start_cluster(folder, {name: str(value) for name, value in settings.items()})

    return run


@pytest.fixture
def start(begin: Callable[..., RunningCluster]) -> Iterator[Callable[..., RunningCluster]]:
    """Start clusters that are stopped when the test ends."""
    started: list[RunningCluster] = []

    def run(**environ: object) -> RunningCluster:
        started.append(begin(**environ))
        return started[-1]

    yield run
    for cluster in started:
        cluster.stop()


@pytest.fixture(scope="session")
def run(begin: Callable[..., RunningCluster]) -> Callable[..., ClusterRun]:
    """Run a cluster to its end. Tests with the same variables share one run."""
    ended: dict[frozenset[tuple[str, object]], ClusterRun] = {}

    def run_once(**environ: object) -> ClusterRun:
        key = frozenset(environ.items())
        if key not in ended:
            ended[key] = begin(**environ).end(MAX_SECONDS)
        return ended[key]

    return run_once


@pytest.fixture
def compose(workbench: Workbench) -> Iterator[Callable[..., Compose]]:
    """Make Compose projects whose containers, networks and volumes are removed at the end."""
    projects: list[Compose] = []

    def make(**environ: str) -> Compose:
        own = {"IMAGE": workbench.image, "RUN_UID": str(os.getuid()), "RUN_GID": str(os.getgid())}
        projects.append(Compose(workbench.new_name("project"), own | environ))
        return projects[-1]

    yield make
    for project in projects:
        project.down()


@pytest.fixture
def peers(workbench: Workbench) -> Iterator[Callable[[int], Peers]]:
    """Make networks for workers, which are removed with their containers at the end."""
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(make_peers(workbench, count))
