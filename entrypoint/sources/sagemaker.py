"""Amazon SageMaker: the hosts of a training job.

The platform writes resourceconfig.json; the SageMaker training toolkit sets the SM_ variables.
Sources:
https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html
https://github.com/aws/sagemaker-training-toolkit/blob/master/ENVIRONMENT_VARIABLES.md
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from entrypoint.cluster.spec import WORKER, Resolution, Task
from entrypoint.errors import ConfigurationError, Problem, all_of
from entrypoint.settings.environ import Environ
from entrypoint.settings.files import READABLE_FILE, UnreadableFileError, read_text
from entrypoint.sources.formats.host_list import read_workers
from entrypoint.strict_json import StrictJSONError, not_shown, parse, parse_object

NEEDS = ("SM_HOSTS", "SM_CURRENT_HOST")

PORT = 8890
"""The port of a worker; WORKER_PORT takes precedence."""

RESOURCES = "opt/ml/input/config/resourceconfig.json"
HOSTS = 'a JSON list of host names, such as ["algo-1","algo-2"]'
AS_ROOT = (
    "On SageMaker everything below /opt/ml belongs to root: train with an image that adds USER root"
    " to this one (docs/how-to/schedulers.md)."
)


def path_of(environ: Environ, path: str) -> Path:
    """Return the path of a file that SageMaker puts into a container."""
    return environ.root / path


def is_here(environ: Environ) -> bool:
    """Whether this container is a SageMaker training job."""
    if any(environ.given(name) for name in NEEDS):
        return True
    return may_exist(path_of(environ, RESOURCES))


def may_exist(path: Path) -> bool:
    """Whether the path exists; also True if this user has no permission to look."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):  # ValueError: a path with a NUL byte
        return False
    return True


def read_object(path: Path) -> dict[str, object]:
    """Return the JSON object in one of SageMaker's files. Raises ConfigurationError."""
    try:
        text = read_text(path)
    except UnreadableFileError as error:
        advice = str(error) if os.access(path, os.R_OK) else f"{error} {AS_ROOT}"
        problem = Problem(str(path), None, READABLE_FILE, advice)
        raise ConfigurationError([problem]) from None
    return parse_value(str(path), text)


def parse_value(name: str, text: str) -> dict[str, object]:
    """Return the JSON object in a variable or a file. Raises ConfigurationError."""
    try:
        return parse_object(text)
    except StrictJSONError as error:
        problem = Problem(name, not_shown(text), "a JSON object", str(error))
        raise ConfigurationError([problem]) from None


def find(environ: Environ, default_port: int) -> Resolution | None:
    """Return the cluster of the job: worker i is entry i of its list of hosts."""
    if not is_here(environ):
        return None
    own_port = None if environ.given("WORKER_PORT") else PORT
    port = own_port or default_port
    source, said = _variables(environ) if any(map(environ.given, NEEDS)) else _file(environ)
    (hosts_name, value), (current_name, current) = said.items()
    hosts = _hosts(hosts_name, value)
    spec, index = all_of(
        lambda: read_workers(hosts_name, hosts, port),
        lambda: _index(current_name, current, hosts),
    )
    return Resolution(source, spec, Task(WORKER, index), own_port=own_port)


def _variables(environ: Environ) -> tuple[str, dict[str, object]]:
    name, text = environ.label("SM_HOSTS"), environ.get("SM_HOSTS")
    try:
        hosts = None if text is None else parse(text)
    except StrictJSONError as error:
        raise ConfigurationError(
            [Problem(name, not_shown(text or ""), HOSTS, str(error))]
        ) from None
    current = environ.get("SM_CURRENT_HOST")
    return "SM_HOSTS", {name: hosts, environ.label("SM_CURRENT_HOST"): current}


def _file(environ: Environ) -> tuple[str, dict[str, object]]:
    path = path_of(environ, RESOURCES)
    document = read_object(path)
    return str(path), {f"{path} {key}": document.get(key) for key in ("hosts", "current_host")}


def _hosts(name: str, value: object) -> list[str]:
    if isinstance(value, list) and value and all(isinstance(host, str) for host in value):
        return value
    shown = None if value is None else json.dumps(value)
    if shown and not isinstance(value, list):  # not a list of hosts, and perhaps a secret
        shown = not_shown(shown)
    raise ConfigurationError([Problem(name, shown, HOSTS)])


def _index(name: str, value: object, hosts: list[str]) -> int:
    current = value.strip() if isinstance(value, str) else None
    if current in hosts:
        return hosts.index(current)
    accepted = f"one of {', '.join(hosts[:5])}{' …' if len(hosts) > 5 else ''}"  # noqa: PLR2004
    raise ConfigurationError([Problem(name, current, accepted)])
