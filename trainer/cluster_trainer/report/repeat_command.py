"""Makes the command that repeats a run, with notes about facts that its folder does not record."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster_trainer.report.run import RecordedRun
from cluster_trainer.settings.config import TrainerConfig
from cluster_trainer.settings.groups import OWN
from cluster_trainer.settings.names.references import is_reference
from cluster_trainer.settings.names.spellings import variable_of

OF_CLUSTER = re.compile(
    r"TRAINER_[A-Z_]+|WORKER_[0-7]_GPUS|WORKERS|NETWORK|IMAGE|OVERLAYS|GRACE_SECONDS|DATA_DIR"
    r"|WORKSPACE_DIR|SCRIPT|RENDEZVOUS_TIMEOUT|GPUS_PER_WORKER|STARTUP_TIMEOUT|STOP_GRACE_SECONDS"
    r"|MIN_WORKERS|REGROUP_SECONDS|MAX_RESTARTS|LOG_FORMAT|METRICS_PORT|REQUIREMENTS_FILE"
    r"|PREEMPTION_NOTICE|PREEMPTION_URL|HOSTS"
)
"""The variables in cluster.json that are repeated; others are not, because workers can write it."""
OF_THE_START = ("RUN_UID", "RUN_GID", "CLUSTER_TOKEN")
TOKEN = "CLUSTER_TOKEN"  # noqa: S105  its name
PLACES = ("data_dir", "run_dir", "model_dir", "resume")
OF_A_SCRIPT = ("model", "dataset")
"""Settings that a script sets itself; they are recorded, and not repeated."""
GPUS = "--gpus all --shm-size 1g"


@dataclass(frozen=True)
class Again:
    """The instructions to start a run again.

    Attributes:
        command: the command for a shell; empty: it is unknown.
        notes: sentences about facts that are unknown, or must not have changed.
    """

    command: str
    notes: tuple[str, ...] = ()


def again(run: RecordedRun) -> Again:
    """Return the instructions for a run: in the repository's folder, or on any machine."""
    if any(OF_CLUSTER.fullmatch(name) for name in run.given):
        return Again(_of_cluster(run), tuple(_notes_of_cluster(run)))
    if run.settings or run.script:
        return Again(_of_container(run), tuple(_notes_of_container(run)))
    return Again(
        "", ("Neither cluster.json, result.json nor about.json records how it was started.",)
    )


def differs_from_default(name: str, value: Any) -> bool:
    """Tell whether a setting differs from its default."""
    known = TrainerConfig.model_fields.get(name)
    if known is None:
        return True
    return str(value) != str(known.get_default(call_default_factory=True))


def _of_cluster(run: RecordedRun) -> str:
    given = [
        f"{name}={shlex.quote(text)}"
        for name, text in run.given.items()
        if text and OF_CLUSTER.fullmatch(name)
    ]
    return " ".join(["env", *given, "make", "up" if run.given.get("HOSTS") else "up-local"])


def _notes_of_cluster(run: RecordedRun) -> Iterator[str]:
    yield "In the folder of the repository, on the machine where it ran."
    if built := _built(run):
        yield f"The image that IMAGE names was {built}; if it is built again, it will differ."
    if run.given.get("SCRIPT"):
        yield "The script itself is not saved here: the file at SCRIPT may have changed."
    if TOKEN in run.given:
        yield f"{TOKEN} was given. It is in no file: give one before `make up-local`."
    others = {*run.given} - {*OF_THE_START}
    if strangers := sorted(name for name in others if not OF_CLUSTER.fullmatch(name)):
        yield (f"Omitted, because they do not start a run: {', '.join(strangers)} (cluster.json).")


def _of_container(run: RecordedRun) -> str:
    several = _workers(run) > 1
    cluster = ["WORKER_HOSTS=…", "WORKER_INDEX=…"] if several else []
    settings = [f"{name}={text}" for name, text in _changed(run).items()]
    given = [*cluster, "TRAINER_RUN_DIR=/runs/again", *settings]
    words = [
        "mkdir -p runs data && docker run --rm",
        *(["--network host"] if several else []),
        '--user "$(id -u):$(id -g)" -v "$PWD/runs:/runs" -v "$PWD/data:/data"',
        '-v "$PWD:/workspace:ro"',
        *(f"-e {shlex.quote(one)}" for one in given),
        "IMAGE",
        *([f"python {shlex.quote(run.script)}"] if run.script else []),
    ]
    return " ".join(words)


def _notes_of_container(run: RecordedRun) -> Iterator[str]:
    built, version = _built(run), run.versions.get("cluster-trainer")
    was = f"; it was {built}" if built else ""
    names = f" (make build names it cluster-trainer:{version}-cpu, or -gpu)" if version else ""
    yield f"IMAGE: its name is not recorded{was}{names}. With GPUs, the GPU image and {GPUS}."
    if _workers(run) > 1:
        yield (
            f"WORKER_HOSTS, WORKER_INDEX: not recorded; the addresses of {_workers(run)} workers, "
            "and on each machine its place in that list."
        )
    if run.script:
        yield from _notes_of_script(run)
    elif modules := _modules(run):
        yield f"In the folder that has the modules of {', '.join(modules)}."
    places = [name for name in ("data_dir", "model_dir") if _is_given(run.settings, name)]
    if places:
        named = ", ".join(variable_of(name) for name in places)
        yield f"Left out, because they are paths of that machine: {named}."
    unknown = [name for name in run.settings if name not in TrainerConfig.model_fields]
    if unknown:
        yield (
            f"From another version, whose image has {', '.join(map(variable_of, unknown))}. "
            "Settings that are not shown here have that version's defaults."
        )


def _notes_of_script(run: RecordedRun) -> Iterator[str]:
    if arguments := run.of_chief("script").get("arguments"):
        yield f"Its arguments: {arguments} were given, and are not recorded: they may be secret."
    yield (
        "In the folder that has the script. The values that it passes to `fit` take "
        "precedence over the variables."
    )


def _built(run: RecordedRun) -> str:
    """Return the known versions in the image, in words."""
    version, revision = (run.versions.get(name) for name in ("cluster-trainer", "revision"))
    tensorflow = run.versions.get("tensorflow")
    parts = [
        f"cluster-trainer {version}" if version else "",
        f"of revision {revision}" if version and revision else "",
        f"with TensorFlow {tensorflow}" if tensorflow else "",
    ]
    return " ".join(part for part in parts if part)


def _workers(run: RecordedRun) -> int:
    return run.fact("workers") or len(run.workers)


def _modules(run: RecordedRun) -> list[str]:
    """Return the user's functions that the settings name."""
    named = [one for text in _changed(run).values() for one in text.split(",")]
    return [one for one in named if is_reference(one)]


def _changed(run: RecordedRun) -> dict[str, str]:
    """Return the settings that were given, as variables."""
    own = (*PLACES, *OF_A_SCRIPT) if run.script else PLACES
    return {
        variable_of(name): _as_text(value)
        for name, value in run.settings.items()
        if name not in own and value != OWN and _is_given(run.settings, name)
    }


def _is_given(settings: Mapping[str, Any], name: str) -> bool:
    value = settings.get(name)
    return value is not None and differs_from_default(name, value)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
