"""`python -m trainer`: read the settings, then import TensorFlow and train.

`python -m trainer check` only says, as JSON, what is wrong with the settings, and which of them all
workers must share.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from trainer import task as tasks
from trainer.config import TrainerConfig
from trainer.problems import ConfigurationError, ExitCode, as_json
from trainer.task import Task


def read(environ: Mapping[str, str], arguments: Sequence[str]) -> tuple[TrainerConfig, Task]:
    """Read the settings and the task.

    Raises:
        ConfigurationError: with the problems of both.
    """
    config = TrainerConfig.read(environ, arguments)
    task = tasks.from_environment(environ)
    config.check_against(task.num_workers)
    return config, task


def check(environ: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Print, as JSON, what is wrong with the settings, or those that all workers must share."""
    try:
        config, _ = read(environ, arguments)
    except ConfigurationError as error:
        print(as_json(error.problems, {}))  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    print(as_json([], config.shared_settings()))  # noqa: T201
    return ExitCode.DONE


def main(environ: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Check or train; return the exit code, unless training ends the process itself."""
    if arguments[:1] == ["check"]:
        return check(environ, arguments[1:])
    try:
        config, task = read(environ, arguments)
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    if not task.trains:
        print(f"{task.name}: the workers evaluate; there is nothing to do here.")  # noqa: T201
        return ExitCode.DONE
    from trainer.lifecycle import run  # noqa: PLC0415  a refusal needs none of it

    return run(config, task)


if __name__ == "__main__":
    # Users' own modules lie in the working directory, behind the image's own packages (`-P`).
    sys.path.append(os.getcwd())  # noqa: PTH109
    sys.exit(main(os.environ, sys.argv[1:]))
