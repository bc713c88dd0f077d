"""The image's entrypoint: read, resolve, then explain or exec.

The only module of this package that looks at `os.environ`, `sys.argv` and the working directory.
The gate (rendezvous) and the supervisor belong between resolve and exec.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence

from entrypoint.arguments import parse_arguments
from entrypoint.banner import banner
from entrypoint.child import become, child_environment
from entrypoint.environ import read_environ
from entrypoint.errors import ConfigurationError, say
from entrypoint.resolve import find_on_this_machine, resolve


def main(arguments: Sequence[str], environ: Mapping[str, str], directory: str) -> int:
    """Run the command in place of this process, or return an exit code."""
    request = parse_arguments(arguments)
    variables = read_environ(environ, directory)
    try:
        answer = resolve(variables, find_on_this_machine)
        environment = child_environment(variables, answer.tf_config_text)
    except ConfigurationError as error:
        # The modules imported below take a while to import, and a good start needs none of them.
        from entrypoint.refuse import refuse  # noqa: PLC0415

        return refuse(error, request, variables)
    if request.explain:
        from entrypoint.explain import explain  # noqa: PLC0415

        return explain(request, variables, answer, environment)
    say(banner(answer.resolution, environ.get("CLUSTER_TRAINER_VERSION")))
    return become(request.command, environment)


def _die_of_interrupt() -> None:
    """Let Ctrl-C end this process as it ends other programs: at once, without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    _die_of_interrupt()
    sys.exit(main(sys.argv[1:], os.environ, ""))
