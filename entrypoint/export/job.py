"""The description of a job, independent of its scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RUNS = "/runs"


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job that the options of `export` describe."""

    name: str
    workers: int
    gpus: int
    """GPUs of each worker."""
    image: str
    storage: str
    """The value of --storage, in the form of this kind of file (`places.py`)."""
    machine: str = ""
    """The value of --machine; "" if this kind of file names no machine (`places.py`)."""
    variables: Mapping[str, str]
    command: tuple[str, ...]

    @property
    def about(self) -> str:
        """The description in the header of the file."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        gpus = {0: "", 1: ", with 1 GPU each"}.get(self.gpus, f", with {self.gpus} GPUs each")
        return workers + gpus

    @property
    def run_dir(self) -> str:
        """The default folder of the run, in the container."""
        return f"{RUNS}/{self.name}"

    def environment(self, own: Mapping[str, str], run_dir: str | None = None) -> dict[str, str]:
        """Return the workers' variables. The user's take precedence over `own`.

        `run_dir` is "" if the platform sets the folder of the run, and None for the default.
        """
        folder = self.run_dir if run_dir is None else run_dir
        runs = {"TRAINER_RUN_DIR": folder} if folder else {}
        gpus = {"GPUS_PER_WORKER": str(self.gpus)} if self.gpus else {}
        return {**runs, **gpus, **own, **self.variables}
