"""`up` with HOSTS: checks the machines, brings them what they need, starts the workers, watches."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Callable

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
from machines.machine import Machine, at_once
from machines.own import Own
from machines.watch import Watch


@dataclass(frozen=True)
class Replacement:
    """Another machine takes the place of one in a cluster that may run.

    Attributes:
        known: the cluster as it is.
        leaving: the machine that leaves, which may not answer.
    """

    known: Kept
    leaving: Machine


@dataclass(frozen=True)
class _Started:
    """A cluster whose workers are started."""

    settings: Settings
    record: local.StartRecord
    kept: Kept


def up(environ: Mapping[str, str], replacement: Replacement | None = None) -> int:
    """Start a cluster on the machines of HOSTS, and show it until it ends; return the exit code.

    0 when all workers end with 0; else that of a worker that failed, or what says that this
    process, or all workers, were told to stop. When this process ends, the workers go on.

    Args:
        environ: all variables.
        replacement: the cluster that is stopped when all is checked and copied; None: none may run.

    Raises:
        EndError: there is a mistake in what was given, a machine cannot do it, or another start is
            at the project or the run.
    """
    begin = time.monotonic()
    hosts = host.read(environ.get("HOSTS", ""))
    chosen = settings.read(environ, hosts, datetime.now())
    with ExitStack() as held:
        held.enter_context(locks.of_project(chosen.project, chosen.user, environ, kept.BUSY))
        if environ.get("RUN_NAME"):
            _lock_run(chosen, environ, held)
        started = _start(chosen, hosts, environ, held, replacement)
    screen = ScreenOptions(shows_all=local.is_verbose(environ))
    is_current = kept.is_current(environ)
    known = replace(started.kept, is_started=True)
    watch = Watch(known.machines, chosen.project, screen, is_current, stop=stopping(known, environ))
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
    chosen: Settings,
    hosts: Sequence[Host],
    environ: Mapping[str, str],
    held: ExitStack,
    replacement: Replacement | None,
) -> _Started:
    """Check the machines and start the workers; an error before the start stops no worker.

    The order lets the command be repeated wherever it was cut off. The cluster's record changes
    when its earlier workers are removed, and before any worker is started.
    """
    local.refuse_engine(chosen)
    if replacement:
        kept.refuse_changed(replacement.known, environ)
    else:
        end_cut_off(environ)
        refuse_running(environ)
    known = kept.read(environ)
    what = image.read(chosen.image)
    code = _pack(chosen)
    own = Own.of(known, may_run=bool(replacement))
    told = checks.check(machine.of(hosts), what, chosen.project, own)
    send_image(what, told, own)
    is_new = not environ.get("RUN_NAME")
    chosen = local.make_folder(chosen, is_new=is_new)
    if is_new:
        _lock_run(chosen, environ, held)
    _prepare(told, code, chosen)
    if replacement:
        _stop_for(replacement)
    decided = {**environ, **settings.settled(chosen, hosts)}
    record = local.remember(chosen, decided, environ)
    folders = tuple(one.folder for one in told)
    place = chosen.run_name, str(chosen.runs), folders
    new = Kept(chosen.project, tuple(hosts), *place, is_started=False)
    if known:
        _remove_earlier(known)
    kept.write(new, environ)
    try:
        _start_workers(_what_all_get(chosen, environ, what, told, code), told)
    except _NoneIsLeftError:
        if not known:
            kept.forget(environ)
        raise
    kept.write(replace(new, is_started=True), environ)
    return _Started(chosen, record, new)


def _stop_for(replacement: Replacement) -> None:
    """Stop a cluster at a checkpoint, with the machine that leaves, if it answers.

    Raises:
        EndError: another machine's worker cannot be stopped.
    """
    known, leaving = replacement.known, replacement.leaving
    say(f"{leaving.name} leaves; stopping the run at a checkpoint")
    found = at_once(lambda one: workers.stop(one, known.project), known.machines)
    those = [one for one, text in zip(known.machines, found) if text and one != leaving]
    running = at_once(lambda one: workers.is_running(one, known.project), those)
    for one, runs in zip(those, running):
        if runs is not False:
            raise EndError(
                EXIT_ERROR,
                found[one.index],
                "no machine was replaced, but workers were stopped: repeat this command, or "
                "`make resume`.",
            )


def _pack(chosen: Settings) -> CodeFolder | None:
    if not chosen.mounted:
        return None
    code = code_folder.pack(chosen.mounted, chosen.runs)
    say(f"code: {code.files} files of {chosen.mounted}, digest {code.digest}")
    return code


def send_image(what: Image, told: Sequence[Facts], own: Own) -> None:
    """Send the image to the machines that lack it, and try the connections that were not tried.

    Raises:
        EndError: it does not arrive, or a machine does not reach another one.
    """
    lacking = {one.machine.name: one.machine for one in told if not one.has(what)}
    if lacking:
        checks.refuse(image.send(what, [*lacking.values()]))
        checks.refuse(connections.problems(what.name, told, own))


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
        raise (EndError if left else _NoneIsLeftError)(EXIT_ERROR, *found, *left)


class _NoneIsLeftError(EndError):
    """No worker was started, or those that were are removed."""


def end_cut_off(environ: Mapping[str, str]) -> None:
    """Stop what an earlier start has left that was cut off before all workers were started.

    They wait for workers that nobody starts. Others cannot join them, as each start has a token.

    Raises:
        EndError: one cannot be stopped.
    """
    known = kept.read(environ)
    if not known or known.is_started:
        return
    running = at_once(lambda one: workers.is_running(one, known.project), known.machines)
    those = [one for one, runs in zip(known.machines, running) if runs]
    if len(those) == len(known.machines):
        kept.write(replace(known, is_started=True), environ)  # it was cut off after the last
    elif those:
        names = ", ".join(f"{one.service} on {one.name}" for one in those)
        say(f"an earlier start was cut off; stopping {names}")
        found = _problems(at_once(lambda one: workers.stop(one, known.project), those))
        if found:
            raise EndError(EXIT_ERROR, *found)


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


def _remove_earlier(known: Kept) -> None:
    """Remove the workers of the project's last start, which have ended."""
    found = at_once(lambda one: workers.remove(one, known.project), known.machines)
    for problem in _problems(found):
        complain(problem)


def stopping(known: Kept, environ: Mapping[str, str]) -> Callable[[], list[str]]:
    """Return what stops a cluster's workers, and returns what went wrong.

    It leaves them to another command that is at the cluster, or that has changed it.
    """

    def stop() -> list[str]:
        try:
            with kept.held(known, environ):
                found = at_once(lambda one: workers.stop(one, known.project), known.machines)
        except EndError as error:
            return [*error.sentences]
        return _problems(found)

    return stop


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
