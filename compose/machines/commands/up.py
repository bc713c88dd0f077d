"""`up` with HOSTS: checks the machines, copies image and code, starts and watches the workers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from local_cluster.commands import up as local
from local_cluster.messages import EXIT_CONFIGURATION
from local_cluster.settings import locks
from local_cluster.settings.settings import Settings
from machines import cluster_record, earlier_run, hosts_setting, image, settings
from machines.checks import connections
from machines.checks.check import check
from machines.checks.facts import Facts
from machines.checks.own import Own
from machines.cluster_record import Kept
from machines.copies import bring
from machines.hosts_setting import Host
from machines.machine import of as machines_of
from machines.watching.in_terminal import report, watch_of
from machines.workers import earlier
from machines.workers.docker_run import Start, threads_of
from machines.workers.replacement import Replacement
from machines.workers.start import NoneIsLeftError, start_all


def up(environ: Mapping[str, str], replacement: Replacement | None = None) -> int:
    """Start a cluster on the machines of HOSTS, and show it until it ends; return the exit code.

    The code is 0 if all workers exit with 0. Otherwise it is the code of a worker that failed, or
    the code of the signal that stopped this process or all workers. If this process ends, the
    workers continue.

    Args:
        environ: all variables.
        replacement: the cluster to stop after the checks and the copies; None: none may run.

    Raises:
        EndError: a setting is wrong, a machine has a problem, or another start uses the project or
            the run.
    """
    begin = time.monotonic()
    hosts = hosts_setting.read(environ.get("HOSTS", ""))
    chosen = settings.read(environ, hosts, datetime.now())
    with ExitStack() as held:
        held.enter_context(
            locks.of_project(chosen.project, chosen.user, environ, cluster_record.BUSY)
        )
        if environ.get("RUN_NAME"):
            _lock_run(chosen, environ, held)
        hosts = earlier_run.with_folders(hosts, chosen, environ)
        started = _start(chosen, hosts, environ, held, replacement)
    watch = watch_of(started.kept, environ)
    code = watch.to_the_end()
    if watch.was_left:
        return code
    if code == EXIT_CONFIGURATION:
        local.forget(started.settings, started.record)
    report(started.kept, code, int(time.monotonic() - begin))
    return code


@dataclass(frozen=True)
class _Started:
    """A cluster whose workers are started."""

    settings: Settings
    record: local.StartRecord
    kept: Kept


def _start(
    chosen: Settings,
    hosts: Sequence[Host],
    environ: Mapping[str, str],
    held: ExitStack,
    replacement: Replacement | None,
) -> _Started:
    """Check the machines, and start the workers.

    With a replacement, the earlier workers run until all is checked and copied.

    The command can be repeated wherever it was interrupted, because of the order of the steps: the
    cluster's record changes after the earlier workers are removed, and before a worker is started.
    The run becomes the newest one only when nothing can be refused any more.
    """
    local.refuse_engine(chosen)
    if replacement:
        cluster_record.refuse_changed(replacement.known, environ)
    else:
        earlier.settle(hosts, environ)
    known = cluster_record.read(environ)
    own = Own.of(known, may_run=bool(replacement))

    found = image.read(chosen.image)
    code = bring.pack(chosen)
    metrics_port = environ.get("METRICS_PORT", "")
    told = check(machines_of(hosts), found, chosen.project, own, metrics_port)

    bring.send_image(found, told, own)
    chosen = _make_folder(chosen, environ, held)
    bring.make_folders(told, chosen.run_name)
    if code:
        bring.send_code(code, told)

    local.point_to(chosen)
    if replacement:
        replacement.stop()
    record = local.remember(chosen, {**environ, **settings.settled(chosen, hosts)}, environ)
    if known:
        earlier.remove(known, hosts)
    start = Start(
        settings=chosen,
        environ=environ,
        image=found,
        hosts=connections.addresses(told),
        digest=code.digest if code else "",
        token=environ.get("CLUSTER_TOKEN") or secrets.token_hex(32),
        threads=threads_of(told, environ),
        name=secrets.token_hex(8),
    )
    return _Started(chosen, record, _start_workers(start, told, environ, is_first=not known))


def _lock_run(chosen: Settings, environ: Mapping[str, str], held: ExitStack) -> None:
    held.enter_context(locks.of_run(chosen.runs, chosen.run_name, chosen.user, environ))


def _make_folder(chosen: Settings, environ: Mapping[str, str], held: ExitStack) -> Settings:
    """Make the run's folder on this machine; return the settings with its final name.

    A new run gets its name and its lock here, so no other start can use it yet.
    """
    is_new = not environ.get("RUN_NAME")
    named = local.make_folder(chosen, is_new=is_new)
    if is_new:
        _lock_run(named, environ, held)
    return named


def _start_workers(
    start: Start, told: Sequence[Facts], environ: Mapping[str, str], *, is_first: bool
) -> Kept:
    """Write the cluster's record, start its workers, and note in the record that all are started.

    Raises:
        EndError: a worker does not start. If no worker is left and the project had no cluster
            before, the record is deleted.
    """
    new = Kept(
        project=start.settings.project,
        hosts=tuple(one.machine.host for one in told),
        run=start.settings.run_name,
        runs=str(start.settings.runs),
        folders=tuple(one.folder for one in told),
        is_started=False,
        start=start.name,
    )
    cluster_record.write(new, environ)
    try:
        start_all(start, told)
    except NoneIsLeftError:
        if is_first:
            cluster_record.forget(environ)
        raise
    whole = replace(new, is_started=True)
    cluster_record.write(whole, environ)
    return whole
