"""`status`: the status of each worker of the local cluster, as a table or as JSON."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from local_cluster import docker_engine
from local_cluster.docker_engine import Engine, WorkerContainer
from local_cluster.messages import EXIT_ERROR, EndError, write
from local_cluster.processes import end
from local_cluster.settings.given_variables import project

ANSWER_SECONDS = 20
"""The time for a container to answer. If its processes hang, it gives no answer."""
STOPPED_CODES = (129, 130, 143)
USAGE = "{{.ID}}\t{{.MemUsage}}\t{{.CPUPerc}}"
HEADS = ("worker", "state", "step", "up", "restarts", "memory", "CPU", "last line")
FRACTION = re.compile(r"\.[0-9]+")
"""The fraction of the engine's times. It has nanoseconds, which Python 3.9 cannot parse."""
MINUTE, HOUR = 60, 3600
GAP = "  "
TIME_AND_LEVEL = "^([0-9:]{{8}} [A-Z]+) {} "
"""The beginning of a line. The worker's name is removed from it: the first column has the name."""
TERMINAL_LINES = 2
"""The maximum number of terminal lines for one worker: its last line may be long."""


def status(environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print the status of all workers, including those that have ended; return the exit code.

    Raises:
        EndError: there are no workers, or the engine does not answer.
    """
    cluster = docker_engine.Project(project(environ))
    workers = cluster.workers()
    if not workers:
        sentence = (
            f"the project {cluster.name} has no workers here. `make up-local` starts some, and "
            "`make resume` resumes the newest run."
        )
        raise EndError(EXIT_ERROR, sentence)
    show(look_at(workers), as_json=as_json)
    return 0


def show(found: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print the status of workers.

    Args:
        found: the result of `look_at`. An entry may have a `machine`, which is then shown, too.
        as_json: whether to print JSON, for programs.
    """
    if as_json:
        text = json.dumps(found, indent=2) + "\n"
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        text = table(found, TERMINAL_LINES * columns)
    write(sys.stdout, text.encode(errors="replace"))


def look_at(
    workers: Sequence[WorkerContainer], on: Engine = docker_engine.LOCAL
) -> list[dict[str, Any]]:
    """Return the status of each worker of an engine. All are asked at the same time."""
    asked = {
        one.container: on.start(
            ["exec", one.container, "status", "--json"],
            output=subprocess.PIPE,
            errors=subprocess.PIPE,
        )
        for one in workers
        if one.status == "running"
    }
    up = [one.container for one in workers if one.status in ("running", "paused")]
    used, now = usage(up, on), _now(on) if up else ""
    return [
        {
            **described(one, _answer(asked.get(one.container)), on),
            "up_seconds": _seconds_between(one.started, now) if one.container in up else None,
            **used.get(one.container, NO_USAGE),
        }
        for one in workers
    ]


def _now(on: Engine) -> str:
    """Return the engine's time; empty if it does not answer."""
    try:
        return on.time()
    except EndError:
        return ""


def _seconds_between(earlier: str, later: str) -> float | None:
    """Return the seconds between two of the engine's times; None if one cannot be read.

    A container's time is in UTC ("…Z"), and the engine's own in its local time ("…+02:00").
    """
    try:
        first, second = (
            datetime.fromisoformat(FRACTION.sub("", one).replace("Z", "+00:00"))
            for one in (earlier, later)
        )
        return max(0.0, (second - first).total_seconds())
    except (ValueError, TypeError):  # not a time, or one without an offset from UTC
        return None


NO_USAGE: Mapping[str, Any] = {"memory": None, "cpu_percent": None}


def usage(ids: Sequence[str], on: Engine = docker_engine.LOCAL) -> dict[str, dict[str, Any]]:
    """Return the memory and the CPU usage of running containers, by container id."""
    if not ids:
        return {}
    ended = on.ask("stats", "--no-stream", "--no-trunc", "--format", USAGE, *ids)
    return dict(_usage(line) for line in ended.stdout.splitlines() if line.count("\t") == 2)  # noqa: PLR2004


def _usage(line: str) -> tuple[str, dict[str, Any]]:
    container, memory, cpu = line.split("\t")
    try:
        percent = float(cpu.rstrip("%"))
    except ValueError:  # "--": it has just ended
        return container, dict(NO_USAGE)
    return container, {"memory": memory.partition(" / ")[0], "cpu_percent": percent}


def _answer(process: subprocess.Popen[bytes] | None) -> dict[str, Any]:
    """Return a container's answer; empty if it gave none."""
    if process is None:
        return {}
    try:
        text = process.communicate(timeout=ANSWER_SECONDS)[0]
        answer = json.loads(text.splitlines()[0])
    except subprocess.TimeoutExpired:
        end(process)
        return {}
    except (ValueError, IndexError):  # an older image, or a worker that is ending
        return {}
    return answer if isinstance(answer, dict) else {}


def described(
    container: WorkerContainer, answer: Mapping[str, Any], on: Engine = docker_engine.LOCAL
) -> dict[str, Any]:
    """Return a worker's status: its answer if it runs, otherwise how it ended."""
    has_ended = container.status in ("exited", "dead")
    known: dict[str, Any] = {
        "worker": container.service,
        "container": container.container[:12],
        "state": container.status,
        "detail": "",
        "step": None,
        "epoch": None,
        "epochs": None,
        "restarts": None,
        "slow_reason": "",
        "network_reason": "",
        "sync_every": None,
        "network_links": [],
        "seconds": None,
        "last_line": "",
        "healthy": None,
        "trouble": "",
        "exit_code": container.code if has_ended else None,
    }
    if has_ended:
        state = "done" if container.code == 0 else "failed"
        known["state"] = "stopped" if container.code in STOPPED_CODES else state
        known["detail"] = "" if container.code == 0 else f"exit code {container.code}"
        known["healthy"] = container.code == 0
        known["last_line"] = _last_line(container.container, on)
    return {**known, **{name: answer[name] for name in known if name in answer}}


def _last_line(container: str, on: Engine) -> str:
    ended = on.ask("logs", "--tail", "1", container)
    lines = (ended.stdout + ended.stderr).splitlines()
    return lines[-1] if lines else ""


def table(found: Sequence[Mapping[str, Any]], width: int) -> str:
    """Return a line for each worker, and one for each problem.

    Args:
        found: the result of `look_at`.
        width: the maximum number of characters in a line; 0: no limit.
    """
    rows = [HEADS, *(row(worker) for worker in found)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEADS) - 1)]
    lines = [GAP.join([*_padded(line, widths), line[-1]]).rstrip() for line in rows]
    if width:
        lines = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    trouble = [f"{one['worker']}: {one['trouble']}" for one in found if one["trouble"]]
    for reason in ("slow_reason", "network_reason"):
        trouble += [f"{one['worker']}: {one[reason]}" for one in found if one[reason]]
    return "".join(f"{line}\n" for line in [*lines, *trouble])


def _padded(line: Sequence[str], widths: Iterable[int]) -> list[str]:
    return [text.ljust(width) for text, width in zip(line, widths)]


def row(worker: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a worker's cells. An unknown value is a dash."""
    ended = worker["exit_code"]
    state = f"{worker['state']} ({ended})" if ended else str(worker["state"])
    step = worker["step"]
    place = f"{step}, epoch {worker['epoch']}/{worker['epochs']}" if worker["epoch"] else step
    cpu = worker["cpu_percent"]
    machine = worker.get("machine")
    return (
        f"{worker['worker']} {machine}" if machine else str(worker["worker"]),
        state,
        _shown(place),
        _up(worker["up_seconds"]),
        _shown(worker["restarts"]),
        _shown(worker["memory"]),
        "-" if cpu is None else f"{cpu:.0f} %",
        re.sub(TIME_AND_LEVEL.format(re.escape(worker["worker"])), r"\1 ", worker["last_line"]),
    )


def _up(seconds: float | None) -> str:
    """Return a container's uptime, in a suitable unit."""
    if seconds is None:
        return "-"
    if seconds < MINUTE:
        return f"{int(seconds)} s"
    return f"{int(seconds / MINUTE)} min" if seconds < HOUR else f"{seconds / HOUR:.1f} h"


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
