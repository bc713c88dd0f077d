"""`data`: prepares data sets for local clusters, in a separate container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from local_cluster import docker_engine
from local_cluster.commands import container
from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.given_variables import ROOT, GivenVariables, project

PICTURES = ROOT / ".build/pictures"
VOLUME = "data"  # the name in compose.yaml
PICTURES_OF_EACH = "600"
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
NO_NAME = (
    'DATASET: received ""; accepted: the name of a TensorFlow Datasets set, as in '
    "`make data DATASET=tf_flowers`."
)
# Failures are reported at once, without retries.
OPTIONS = (
    *("--tmpfs", "/tmp:mode=1777", "--env", "MAX_RESTARTS=0"),  # noqa: S108
    *("--env", "CUDA_VISIBLE_DEVICES=-1", "--env", "TF_CPP_MIN_LOG_LEVEL=3"),
)


def prepare(environ: Mapping[str, str], name: str) -> NoReturn:
    """Prepare a TensorFlow Datasets set; download it if necessary.

    Raises:
        EndError: a setting is wrong, or there is no image.
    """
    _become(environ, ["-m", "trainer", "prepare", name], [name])


def sample(environ: Mapping[str, str], names: Sequence[str]) -> NoReturn:
    """Make small samples of sets from the pictures that `scripts/build.sh pictures` fetches.

    Raises:
        EndError: a setting is wrong, or the image or the pictures are missing.
    """
    if not PICTURES.is_dir():
        accepted = f"pictures in {PICTURES}; `scripts/build.sh pictures` fetches them"
        raise EndError(EXIT_CONFIGURATION, f"data sample: accepted: {accepted}.")
    count = environ.get("SAMPLE_PICTURES") or PICTURES_OF_EACH
    command = ["/data_sample.py", "--pictures", count, *names]
    program = ROOT / "scripts/data_sample.py"
    _become(environ, command, names, {PICTURES: "/pictures", program: command[0]})


def _become(
    environ: Mapping[str, str],
    program: Sequence[str],
    names: Sequence[str],
    mounted: Mapping[Path, str] = MappingProxyType({}),
) -> NoReturn:
    """Replace this process with `docker run`, which receives Ctrl-C and sets the exit code.

    Args:
        environ: the variables.
        program: the arguments of Python in the container.
        names: the names of the sets.
        mounted: other files and folders of this machine -> their places in the container.
    """
    if not all(names) or not names:
        raise EndError(EXIT_CONFIGURATION, NO_NAME)
    given = GivenVariables(environ)
    folder = given.folder("DATA_DIR")
    one = container.read(environ, given, *([Path(folder)] if folder else []), *mounted)
    place = folder or _volume(project(environ))
    proxies = [part for name in PROXIES if environ.get(name) for part in ("--env", name)]
    volumes = [f"{place}:/data", *(f"{here}:{there}:ro" for here, there in mounted.items())]
    options = [part for volume in volumes for part in ("--volume", volume)]
    one.become([*OPTIONS, *proxies, *options], ["python", *program])


def _volume(cluster: str) -> str:
    """Return the name of the project's data volume; create it with Compose's labels if missing."""
    volume = f"{cluster}_{VOLUME}"
    labels = (f"{docker_engine.PROJECT}={cluster}", f"com.docker.compose.volume={VOLUME}")
    if docker_engine.ask("volume", "inspect", volume).returncode:
        chosen = [part for label in labels for part in ("--label", label)]
        docker_engine.output_of("volume", "create", *chosen, volume)
    return volume
