"""Finds the machines and the folders of an earlier run, from the record of its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from local_cluster.commands.resume import HOSTS, name_of_run, was_of
from local_cluster.messages import EXIT_CONFIGURATION, EndError
from local_cluster.settings.given_variables import project, runs_folder
from local_cluster.settings.run_record import parse as settings_of
from local_cluster.settings.run_record import record_of
from local_cluster.settings.settings import Settings
from machines.cluster_record import Kept, refuse_none
from machines.hosts_setting import EARLIER_FOLDER, FOLDER, Host, parse


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
    # SSH's commands start in the home folder.
    folders = tuple((host.dir or EARLIER_FOLDER).removeprefix("~/") for host in hosts)
    return Kept(was.get("COMPOSE_PROJECT_NAME") or project(environ), hosts, run, str(runs), folders)


def chosen(known: Kept | None, environ: Mapping[str, str]) -> Kept:
    """Return the project's cluster, or that of the run RUN_NAME if it is another run.

    Raises:
        EndError: there is no such run, or it was not on other machines.
    """
    if known and environ.get("RUN_NAME", known.run) in ("", "latest", known.run):
        return known
    return cluster_of(environ)


def with_folders(
    hosts: Sequence[Host], settings: Settings, environ: Mapping[str, str]
) -> list[Host]:
    """Return the hosts of a start, each with its folder for runs and code.

    The record of a run that an earlier version started names no folders. Such a run keeps the
    default of that version.

    Raises:
        EndError: the run's record cannot be read.
    """
    record = record_of(settings.runs, settings.run_name, environ)
    was = settings_of(record.text()).get(HOSTS, "")
    places = [host.dir for host in parse(was.splitlines())] if was else []
    is_earlier = any(place in ("", EARLIER_FOLDER) for place in places)
    default = EARLIER_FOLDER if is_earlier else FOLDER
    return [host if host.dir else replace(host, dir=default) for host in hosts]
