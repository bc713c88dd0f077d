"""Finds the machines with the results of an earlier run, from the record of its start."""

from __future__ import annotations

from collections.abc import Mapping

from local_cluster.commands.resume import HOSTS, name_of_run, was_of
from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.given import project, runs_folder
from local_cluster.settings.remembered import record_of
from machines.host import FOLDER_IN_HOME, parse
from machines.kept import Kept, refuse_none


def cluster_of(environ: Mapping[str, str]) -> Kept:
    """Return the cluster that has trained the run RUN_NAME, or the newest run if it is not set.

    Raises:
        EndError: there is no such run, or it was not on other machines.
    """
    runs, name = runs_folder(environ), environ.get("RUN_NAME", "")
    try:
        run = name_of_run(runs, name)
        was = was_of(record_of(runs, run, environ), run)
    except EndError:
        if name:
            raise
        was, run = {}, ""
    if not was.get(HOSTS):
        if not name:
            refuse_none(environ)
        told = f'RUN_NAME: received "{name}", a run of this machine'
        raise EndError(EXIT_CONFIGURATION, f"{told}; accepted: a run on other machines.")
    hosts = tuple(parse(was[HOSTS].splitlines()))
    # A relative path, because SSH's commands start in the home folder.
    folders = tuple(host.dir or FOLDER_IN_HOME for host in hosts)
    return Kept(was.get("COMPOSE_PROJECT_NAME") or project(environ), hosts, run, str(runs), folders)


def chosen(known: Kept | None, environ: Mapping[str, str]) -> Kept:
    """Return the project's cluster, or that of the run RUN_NAME if it is another run.

    Raises:
        EndError: there is no such run, or it was not on other machines.
    """
    if known and environ.get("RUN_NAME", known.run) in ("", "latest", known.run):
        return known
    return cluster_of(environ)
