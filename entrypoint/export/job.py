"""The job that a file describes, whatever its scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RUNS = "/runs"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the options of `export` ask for."""

    name: str
    workers: int
    gpus: int
    """GPUs of each worker."""
    image: str
    storage: str
    """Where /runs is, as the kind of file takes it (`places.py`)."""
    machine: str = ""
    """On what it trains, if the kind of file names it (`places.py`)."""
    variables: Mapping[str, str]
    command: tuple[str, ...]

    @property
    def about(self) -> str:
        """What the header says of the job."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        gpus = {0: "", 1: ", with 1 GPU each"}.get(self.gpus, f", with {self.gpus} GPUs each")
        return workers + gpus

    @property
    def run_dir(self) -> str:
        """The folder of the run, where the file decides it."""
        return f"{RUNS}/{self.name}"

    def environment(self, own: Mapping[str, str], run_dir: str | None = None) -> dict[str, str]:
        """Return the workers' variables: these, then the user's, which take precedence.

        `run_dir` is "" if the platform sets the folder of the run, and None for the usual one.
        """
        folder = self.run_dir if run_dir is None else run_dir
        runs = {"TRAINER_RUN_DIR": folder} if folder else {}
        gpus = {"GPUS_PER_WORKER": str(self.gpus)} if self.gpus else {}
        return {**runs, **gpus, **own, **self.variables}
