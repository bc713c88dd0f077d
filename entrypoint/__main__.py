"""The image's entrypoint: read, resolve, then explain, or meet the peers and run the command.

Only this module of the package reads `os.environ`, `sys.argv` and the working directory.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from entrypoint.arguments import EXPORT, SELFTEST, STATUS, Request, parse_arguments
from entrypoint.checks.gpu_machine import check_machine
from entrypoint.checks.options import (
    check_files,
    check_metrics_port,
    check_min_workers,
    check_preemption,
    regroup_warning,
)
from entrypoint.cluster.spec import ALONE
from entrypoint.errors import STDERR, ConfigurationError, all_of, raise_any
from entrypoint.log import Log
from entrypoint.packages.requirements import Requirements, find_requirements
from entrypoint.settings.command_environment import command_environment, trainer_settings
from entrypoint.settings.environ import Environ, read_environ
from entrypoint.settings.framework_variables import framework_notes, framework_variables
from entrypoint.settings.options import JSON, Options, read_options
from entrypoint.settings.unrelated_variables import proxy_note, service_links_note
from entrypoint.sources import with_contract_settings
from entrypoint.sources.alone import alone_warning
from entrypoint.sources.resolve import Answer, find_on_this_machine, resolve
from entrypoint.start import ResolvedStart, start
from entrypoint.start_messages.banner import banner
from entrypoint.status.places import places
from entrypoint.supervision.child.child_process import hold_notices, unblock_signals
from entrypoint.supervision.child.command import become


def main(arguments: Sequence[str], environ: Mapping[str, str], directory: Path) -> int:
    """Run the command that the arguments name; return the exit code."""
    if arguments[:1] == [STATUS]:
        # seldom needed
        from entrypoint.status.show import show_status  # noqa: PLC0415

        return show_status(arguments[1:], environ)
    if arguments[:1] == [EXPORT]:
        from entrypoint.export.export import export  # noqa: PLC0415

        return export(arguments[1:])
    request = parse_arguments(arguments)
    if arguments[:1] == [SELFTEST]:
        unblock_signals()
        return become(request.command, environ)
    variables = with_contract_settings(read_environ(environ, directory))
    options, wrong = read_options(variables)
    try:
        answer, _, requirements = all_of(
            lambda: resolve(variables, find_on_this_machine),
            lambda: raise_any(wrong),
            lambda: find_requirements(
                options.requirements_file,
                directory,
                root=variables.root,
                label=variables.label("REQUIREMENTS_FILE"),
            ),
        )
        environment = _environment(request, variables, options, answer, requirements)
        _check(request, options, environment, answer, directory)
    except ConfigurationError as error:
        # Imported here: it imports subprocess, which a normal start does not need.
        from entrypoint.start_messages.refuse import refuse  # noqa: PLC0415

        return refuse(error, request, options, variables.texts(), directory)
    if request.explain:
        from entrypoint.start_messages.explain import explain  # noqa: PLC0415

        return explain(request, variables, answer, environment, requirements)
    task = (answer.resolution.task if answer.resolution else None) or ALONE
    log = Log(str(task), as_json=options.log_format == JSON)
    own_line = banner(answer.resolution, environ.get("CLUSTER_TRAINER_VERSION"))
    log.shared(own_line, is_chief=not answer.resolution or not answer.resolution.rank)
    _say_more(variables, options, answer, directory, log)
    found = ResolvedStart(
        request, answer.resolution, options, environment, requirements, places(environ)
    )
    return _runner(request)(found, log)


def _runner(request: Request) -> Callable[[ResolvedStart, Log], int]:
    """Return the function that runs a resolved start."""
    if not request.is_network:
        return start
    from entrypoint.network_command import measure_network  # noqa: PLC0415 -- seldom needed

    return measure_network


def _environment(
    request: Request,
    variables: Environ,
    options: Options,
    answer: Answer,
    requirements: Requirements | None,
) -> Mapping[str, str]:
    """Return the command's variables. Raises ConfigurationError."""
    environment = command_environment(variables, answer.tf_config_text, answer.hosts)
    environment |= framework_variables(answer.resolution, environment)
    if requirements:
        environment = requirements.added_to(environment)
    if request.is_trainer:
        environment = {**trainer_settings(variables, options), **environment}
    return environment


def _check(
    request: Request,
    options: Options,
    environment: Mapping[str, str],
    answer: Answer,
    directory: Path,
) -> None:
    """Raise ConfigurationError if options contradict this machine, each other, or the command."""
    ports = answer.ports
    # The trainer's own check covers its flags, too.
    collectives = "" if request.is_trainer else environment.get("TRAINER_COLLECTIVES", "")
    all_of(
        lambda: check_machine(options.gpus_per_worker, environment),
        # `explain` may run beside the worker that uses the port.
        lambda: check_metrics_port(options.metrics_port, ports, must_be_free=not request.explain),
        lambda: check_min_workers(options, len(ports) or 1, collectives),
        lambda: check_preemption(options),
        lambda: check_files(options, directory),
        lambda: _check_network(request, answer),
    )


def _check_network(request: Request, answer: Answer) -> None:
    """Raise ConfigurationError if `network` was requested, but cannot run."""
    if request.is_network:
        from entrypoint.network_command import check_network  # noqa: PLC0415 -- seldom needed

        check_network(request.command[1:], answer.resolution)


def _say_more(
    variables: Environ, options: Options, answer: Answer, directory: Path, log: Log
) -> None:
    """Log warnings and notes about effects that may surprise the user."""
    is_given = variables.given("REGROUP_SECONDS") and len(answer.ports) > 1
    for warning in (
        regroup_warning(options.min_workers, is_given=is_given),
        "" if answer.resolution else alone_warning(variables),
    ):
        if warning:
            log.warning(warning)
    if not os.access(directory, os.X_OK):
        log.warning(
            f"{Path.cwd()} cannot be searched: a .env or requirements.txt there is not read"
        )
    for note in (
        service_links_note(variables.service_links),
        proxy_note(variables.texts(), answer.hosts),
        *framework_notes(answer.resolution, variables.texts()),
    ):
        if note:
            log.info(note)


def _die_of_interrupt() -> None:
    """Let Ctrl-C end this process at once, without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_missing_streams() -> None:
    """Open /dev/null in place of standard streams that are closed (`2>&-`).

    Otherwise the next file or socket that is opened gets that number, and receives the log. It is
    opened for reading, so that a write still fails.
    """
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= STDERR:
        pass
    os.close(descriptor)


if __name__ == "__main__":
    _open_missing_streams()
    _die_of_interrupt()
    hold_notices()
    sys.exit(main(sys.argv[1:], os.environ, Path()))
