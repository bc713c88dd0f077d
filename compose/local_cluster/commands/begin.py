"""`begin`: chooses the run of `docker compose up`, in a container that runs before the workers.

A run belongs to the containers that were created for it. Containers that are started again continue
their run, unless it is done. New containers begin a new run: after `docker compose down`, or after
a change of a setting. RUN_NAME overrides this.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from local_cluster.messages import say
from local_cluster.run import folder as folders
from local_cluster.settings.given_variables import GivenVariables, project, services
from local_cluster.settings.names import MAX_WORKERS, unknown_settings
from local_cluster.shared_folder import SharedFolder, refusal

RUNS = Path(folders.IN_CONTAINERS)
OWN_RUN = Path("/var/lib/cluster-trainer-run")
"""The file is in this container's own layer, so it exists as long as the container."""
FIRST_WORKERS = 2
"""The number of workers without a profile (compose.yaml)."""
DONE = ("DONE", "ENDED")  # the trainer writes the first, a script the second


def begin(environ: Mapping[str, str], runs: Path = RUNS, own_run: Path = OWN_RUN) -> int:
    """Choose the run, make its folder, and write its name where the workers look for it.

    Raises:
        EndError: a setting is wrong, or the folder cannot be made.
    """
    given = GivenVariables(environ)
    own = unfinished(runs, own_run)
    name = given.run_name(own or f"{datetime.now():%Y%m%d-%H%M%S}")
    user = given.user()
    wrong = [*_wrong_image(environ.get("IMAGE", "")), *_wrong_profiles(environ)]
    given.raise_problems([*unknown_settings(environ), *wrong])
    try:
        name = folders.make(runs, name, [], is_new=not (own or environ.get("RUN_NAME")))
        folders.point_to(runs, name, project(environ))
        folders.hand_over(runs, name, project(environ), user)
        own_run.write_text(name)
    except OSError as error:
        raise refusal(SharedFolder(runs, name), error) from error
    say(f"run {name}")
    return 0


def _wrong_image(image: str) -> list[str]:
    """Return a sentence if this is a CPU image that Compose has built under a GPU image's name."""
    try:
        version("tensorflow-cpu")
    except PackageNotFoundError:
        return []
    if "gpu" not in image:
        return []
    build = "`make build-gpu`, or add `-f compose/gpu.yaml`"
    return [f'IMAGE: received "{image}", which is a CPU image here. Remove it, then {build}.']


def _wrong_profiles(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence if COMPOSE_PROFILES is not worker-2, worker-3 and so on, in this order.

    compose.yaml makes the list of workers from it. They would wait for a worker that never comes,
    or not be at their own places in the list.
    """
    text = environ.get("COMPOSE_PROFILES", "")
    further = text.split(",") if text else []
    first = services(FIRST_WORKERS)
    is_list = environ.get("WORKER_HOSTS") == ",".join([*first, *further])  # not with CLUSTER_HOSTS
    if not is_list or [*first, *further] in map(services, range(FIRST_WORKERS, MAX_WORKERS + 1)):
        return []
    accepted = (
        f"nothing; or worker-2, worker-3 and so on up to worker-{MAX_WORKERS - 1}, without gaps, "
        "in this order, between commas. `docker compose --profile tensorboard up` also starts "
        "TensorBoard"
    )
    return [f'COMPOSE_PROFILES: received "{text}"; accepted: {accepted}.']


def unfinished(runs: Path, own_run: Path) -> str:
    """Return the run that this container chose earlier; empty if there is none, or it is done."""
    try:
        name = own_run.read_text()
    except FileNotFoundError:
        return ""
    folder = SharedFolder(runs, name)
    workers = [folder.below(one) for one in folder.names() if one.startswith("worker-")]
    done = bool(workers) and all(any(map(one.has_file, DONE)) for one in workers)
    return "" if done else name
