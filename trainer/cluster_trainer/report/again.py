"""The command that runs a run again, from what it has left."""

import shlex
from collections.abc import Mapping
from typing import Any

from cluster_trainer.report.run import Run
from cluster_trainer.settings.config import OWN, TrainerConfig, variable_of

NOT_OF_MAKE = ("RUN_UID", "RUN_GID", "CLUSTER_TOKEN")
PLACES = ("data_dir", "run_dir", "resume")
TASK = ("TRAINER_RUN_DIR=/runs/again",)


def command(run: Run) -> str:
    """Return a shell command for the folder of the repository, or for a machine with the image."""
    if run.given:
        given = [f"{n}={shlex.quote(t)}" for n, t in run.given.items() if n not in NOT_OF_MAKE]
        return " ".join(["env", *given, "make up-local"])
    if not run.settings:
        return ""
    image = f"cluster-trainer:{run.versions.get('cluster-trainer', 'cpu')}"
    workers = run.chief.result.get("workers") or len(run.workers)
    cluster = ["WORKER_HOSTS=…", "WORKER_INDEX=…"] if workers > 1 else []
    variables = [*cluster, *TASK, *(f"{n}={t}" for n, t in _changed(run.settings).items())]
    options = " ".join(f"-e {shlex.quote(one)}" for one in variables)
    return f'docker run --rm -v "$PWD/runs:/runs" {options} {shlex.quote(image)}'


def differs_from_default(name: str, value: Any) -> bool:
    """Tell whether a setting is not what it is where nobody gives it."""
    known = TrainerConfig.model_fields.get(name)
    if known is None:
        return True
    return str(value) != str(known.get_default(call_default_factory=True))


def _changed(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that were given, as variables; a script has its own ones itself."""
    return {
        variable_of(name): _as_text(value)
        for name, value in settings.items()
        if name not in PLACES and value not in (None, OWN) and differs_from_default(name, value)
    }


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
