"""`up` with HOSTS: checks the machines, brings them what they need, starts the workers, watches."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from local_cluster.commands import up as local
from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, EndError, complain, say, write
from local_cluster.run.lines import ScreenOptions
from local_cluster.run.report import TOLD_TO_STOP, print_table
from local_cluster.settings import locks
from local_cluster.settings.settings import Settings
from local_cluster.shared_folder import SharedFolder
from machines import checks, code_folder, connections, host, image, kept, machine, settings, workers
from machines.code_folder import CodeFolder
from machines.facts import Facts
from machines.host import Host
from machines.image import Image
from machines.kept import Kept
from machines.machine import at_once
from machines.watch import Watch


@dataclass(frozen=True)
class _Started:
    """A cluster whose workers are started."""

    settings: Settings
    record: local.StartRecord


def up(environ: Mapping[str, str]) -> int:
    """Start a cluster on the machines of HOSTS, and show it until it ends; return the exit code.

    0 when all workers end with 0; else that of a worker that failed, or what says that this
    process, or all workers, were told to stop. When this process ends, the workers go on.

    Raises:
        EndError: there is a mistake in what was given, a machine cannot do it, or another start is
            at the project or the run.
    """
    begin = time.monotonic()
    hosts = host.read(environ.get("HOSTS", ""))
    chosen = settings.read(environ, hosts, datetime.now())
    with ExitStack() as held:
        held.enter_context(locks.of_project(chosen.project, chosen.user, environ))
        if environ.get("RUN_NAME"):
            _lock_run(chosen, environ, held)
        started = _start(chosen, hosts, environ, held)
    screen = ScreenOptions(shows_all=local.is_verbose(environ))
    is_current = kept.is_current(environ)
    watch = Watch(machine.of(hosts), chosen.project, screen, is_current)
    code = watch.to_the_end()
    if watch.was_left:
        return code
    if code == EXIT_CONFIGURATION:
        local.forget(started.settings, started.record)
    report(len(hosts), started.settings.folder, code, int(time.monotonic() - begin))
    return code


def _lock_run(chosen: Settings, environ: Mapping[str, str], held: ExitStack) -> None:
    held.enter_context(locks.of_run(chosen.runs, chosen.run_name, chosen.user, environ))


def _start(
    chosen: Settings, hosts: Sequence[Host], environ: Mapping[str, str], held: ExitStack
) -> _Started:
    """Check the machines and start the workers; an error before the start changes no machine."""
    local.refuse_engine(chosen)
    refuse_running(environ)
    what = image.read(chosen.image)
    code = _pack(chosen)
    told = checks.check(machine.of(hosts), what, chosen.project)
    send_image(what, told)
    is_new = not environ.get("RUN_NAME")
    chosen = local.make_folder(chosen, is_new=is_new)
    if is_new:
        _lock_run(chosen, environ, held)
    decided = {**environ, **settings.settled(chosen, hosts)}
    record = local.remember(chosen, decided, environ)
    _prepare(told, code, chosen)
    folders = tuple(one.folder for one in told)
    _remove_earlier(environ)
    kept.write(
        Kept(chosen.project, tuple(hosts), chosen.run_name, str(chosen.runs), folders), environ
    )
    try:
        _start_workers(_what_all_get(chosen, environ, what, told, code), told)
    except EndError:
        kept.forget(environ)
        raise
    return _Started(chosen, record)


def _pack(chosen: Settings) -> CodeFolder | None:
    if not chosen.mounted:
        return None
    code = code_folder.pack(chosen.mounted, chosen.runs)
    say(f"code: {code.files} files of {chosen.mounted}, digest {code.digest}")
    return code


def send_image(what: Image, told: Sequence[Facts]) -> None:
    """Send the image to the machines that lack it, and try the connections that were not tried.

    Raises:
        EndError: it does not arrive, or a machine does not reach another one.
    """
    lacking = {one.machine.name: one.machine for one in told if not one.has(what)}
    if lacking:
        checks.refuse(image.send(what, [*lacking.values()]))
        checks.refuse(connections.problems(what.name, told))


def _prepare(told: Sequence[Facts], code: CodeFolder | None, chosen: Settings) -> None:
    checks.refuse(
        _problems(at_once(lambda one: code_folder.make_folders(one, chosen.run_name), told))
    )
    if code:
        places = {(one.machine.name, one.folder): one for one in told}  # workers may share it
        checks.refuse(
            _problems(at_once(lambda one: code_folder.send(code, one), [*places.values()]))
        )


def _what_all_get(
    chosen: Settings,
    environ: Mapping[str, str],
    what: Image,
    told: Sequence[Facts],
    code: CodeFolder | None,
) -> workers.Start:
    return workers.Start(
        settings=chosen,
        environ=environ,
        image=what,
        hosts=connections.addresses(told),
        digest=code.digest if code else "",
        token=environ.get("CLUSTER_TOKEN") or secrets.token_hex(32),
        threads=workers.threads_of(told, environ),
        name=secrets.token_hex(8),
    )


def _start_workers(start: workers.Start, told: Sequence[Facts]) -> None:
    """Start all workers, or none.

    Raises:
        EndError: one does not start.
    """
    names = ", ".join(one.machine.name for one in told)
    say(f"{len(told)} worker(s) of {start.image.name} on {names}, run {start.settings.run_name}")
    if found := _problems(at_once(lambda one: workers.start_one(start, one), told)):
        left = _problems(at_once(lambda one: workers.remove_of_start(one.machine, start), told))
        raise EndError(EXIT_ERROR, *found, *left)


def refuse_running(environ: Mapping[str, str]) -> None:
    """Make sure that no worker of the project runs on the machines of its last start.

    Raises:
        EndError: one does.
    """
    known = kept.read(environ)
    if not known:
        return
    running = at_once(lambda one: workers.is_running(one, known.project), known.machines)
    those = [one.name for one, runs in zip(known.machines, running) if runs]
    if those:
        how = "`make attach` shows it, `make stop` stops it at a checkpoint"
        where = ", ".join(those)
        raise EndError(
            EXIT_CONFIGURATION, f"a cluster of the project {known.project} runs on {where}: {how}."
        )


def _remove_earlier(environ: Mapping[str, str]) -> None:
    """Remove the workers of the project's last start, which have ended."""
    if known := kept.read(environ):
        found = at_once(lambda one: workers.remove(one, known.project), known.machines)
        for problem in _problems(found):
            complain(problem)


def _problems(found: Sequence[str]) -> list[str]:
    return [one for one in found if one]


def report(number: int, folder: SharedFolder, code: int, seconds: int | None = None) -> None:
    """Print how a run ended, and where everything is."""
    write(sys.stdout, b"\n")
    if code in TOLD_TO_STOP:
        say("stopped; `make resume` resumes the run")
    elif code:
        say(f"failed with exit code {code}")
    else:
        say(f"done: {number} worker(s)" + (f", {seconds} s" if seconds is not None else ""))
    where = f"on the machines; `make fetch` copies them to {folder.path}"
    how = "`make status`, `make logs`; `make down` removes them"
    print_table([("results", where), ("workers", how)])
