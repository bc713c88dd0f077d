"""The first line of a start, which says which worker this is."""

from __future__ import annotations

from entrypoint.cluster.spec import Resolution


def banner(resolution: Resolution | None, version: str | None) -> str:
    """Return a line such as "cluster-trainer 0.1.0: worker-1 of 2 (chief is worker-0 at …), …"."""
    program = f"cluster-trainer {version}" if version else "cluster-trainer"
    if resolution is None or resolution.task is None:
        return f"{program}: one worker, no TF_CONFIG"
    passed_on = resolution.source == "TF_CONFIG"
    origin = "TF_CONFIG as given" if passed_on else f"TF_CONFIG from {resolution.source}"
    return f"{program}: {resolution.task} {_place(resolution)}, {origin}"


def _place(resolution: Resolution) -> str:
    chief, count = resolution.spec.chief, len(resolution.spec.members)
    beside = "of" if resolution.rank is not None else "beside a cluster of"
    who = "the chief" if resolution.rank == 0 else f"chief is {chief.task} at {chief.address}"
    return f"{beside} {count} ({who})"
