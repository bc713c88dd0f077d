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
    """Kubernetes: the class and size of the claim. Otherwise a folder, or "" for the default."""
    variables: Mapping[str, str]
    command: tuple[str, ...]

    @property
    def about(self) -> str:
        """What the header says of the job."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        gpus = {0: "", 1: ", with 1 GPU each"}.get(self.gpus, f", with {self.gpus} GPUs each")
        return workers + gpus

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the workers' variables: these, then the user's, which take precedence."""
        gpus = {"GPUS_PER_WORKER": str(self.gpus)} if self.gpus else {}
        return {"TRAINER_RUN_DIR": f"{RUNS}/{self.name}", **gpus, **own, **self.variables}
