"""Runs the command of a command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from local_cluster.commands import data, project
from local_cluster.commands.begin import begin
from local_cluster.commands.report import report
from local_cluster.commands.resume import resume
from local_cluster.commands.status import status
from local_cluster.commands.stop import stop
from local_cluster.commands.tensorboard import tensorboard
from local_cluster.commands.up import up
from local_cluster.messages import EXIT_CONFIGURATION, EndError, complain
from local_cluster.settings import dotenv
from local_cluster.settings.given_variables import ROOT
from local_cluster.settings.given_variables import project as name_of
from local_cluster.settings.names import RUNS, check_names
from machines import cluster_record, earlier_run
from machines import commands as on_machines
from machines.commands.fetch import fetch
from machines.commands.up import up as up_on_machines

INTERRUPTED = 130


def main(arguments: Sequence[str], environ: Mapping[str, str], description: str) -> int:
    """Run a command and return the exit code."""
    try:
        given = _parser(description).parse_args(arguments)
        if hosts := getattr(given, "hosts", ""):
            environ = {**environ, "HOSTS": hosts}
        merged = dotenv.over(ROOT / ".env", environ, strict=_starts_something(given))
        return run(given, environ, merged)
    except EndError as error:
        for sentence in error.sentences:
            complain(sentence)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED


def run(given: argparse.Namespace, shell: Mapping[str, str], environ: Mapping[str, str]) -> int:
    """Run a command and return the exit code.

    The command applies to the project's cluster on several machines, if there is one.

    Args:
        given: the command and its arguments.
        shell: the variables of the shell.
        environ: these variables, and those that .env adds.

    Raises:
        EndError: the command failed.
    """
    known = cluster_record.read(environ) if given.command in on_machines.NAMES else None
    if known:
        found = on_machines.of(known, given, shell, environ, _up)
    else:
        found = _local(given, shell, environ)
    return found[given.command]()


def _local(
    given: argparse.Namespace, shell: Mapping[str, str], environ: Mapping[str, str]
) -> Mapping[str, Callable[[], int]]:
    """Return the commands of a project that has no cluster on several machines."""
    nowhere: Mapping[str, Callable[[], int]] = {
        name: lambda: cluster_record.refuse_none(environ) for name in on_machines.ONLY
    }
    return {
        **nowhere,
        "fetch": lambda: fetch(earlier_run.chosen(None, environ), environ),
        "up": lambda: _up(environ),
        "stop": lambda: stop(environ, given.worker),
        "resume": lambda: resume(environ, shell, given.worker, _up),
        "status": lambda: status(environ, as_json=given.json),
        "prepare": lambda: data.prepare(environ, given.name),
        "sample": lambda: data.sample(environ, given.names),
        "tensorboard": lambda: tensorboard(environ),
        "report": lambda: report(environ),
        "names": lambda: check_names(environ, shell, given.goals, given.given),
        "begin": lambda: begin(environ),
        "down": lambda: project.down(name_of(environ), shell),
        "logs": lambda: project.logs(name_of(environ), shell),
        "ps": lambda: project.ps(name_of(environ), shell),
    }


def _up(environ: Mapping[str, str]) -> int:
    """Start a cluster on the machines in HOSTS, or on this machine if HOSTS is empty."""
    if environ.get("HOSTS"):
        return up_on_machines(environ)
    cluster_record.refuse_other(environ)
    return up(environ)


def _starts_something(given: argparse.Namespace) -> bool:
    """Whether every setting must be valid. Stopping and showing a cluster must always work."""
    if given.command == "names":
        return bool(RUNS.intersection(given.goals))
    return str(given.command) in ("up", "begin", "resume", "replace", "prepare", "sample")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise EndError(EXIT_CONFIGURATION, f"cluster.py: {message} (see cluster.py --help)")


def _parser(description: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cluster.py",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="cluster.py COMMAND",
    )
    commands = parser.add_subparsers(dest="command", required=True, help=argparse.SUPPRESS)
    commands.add_parser("up").add_argument("--hosts", default="")
    for name in ("begin", "tensorboard", "report", "down", "logs", "ps", "attach", "fetch"):
        commands.add_parser(name)
    commands.add_parser("stop").add_argument("worker", nargs="?", default="")
    again = commands.add_parser("resume")
    again.add_argument("worker", nargs="?", default="")
    again.add_argument("--hosts", default="")
    change = commands.add_parser("replace")
    change.add_argument("host")
    change.add_argument("by")
    commands.add_parser("status").add_argument("--json", action="store_true")
    sets = commands.add_parser("data").add_subparsers(dest="command", required=True)
    sets.add_parser("prepare").add_argument("name")
    sets.add_parser("sample").add_argument("names", nargs="+")
    names = commands.add_parser("names")
    names.add_argument("goals", nargs="*")
    names.add_argument("--given", nargs="*", default=[])
    return parser
