"""`python -m trainer`: read the settings, then import TensorFlow and train.

`python -m trainer check` only says, as JSON, what is wrong with the settings, which of them all
workers must share, and whether the run is done already.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from cluster_trainer import done
from cluster_trainer.job import read_job
from cluster_trainer.problems import ConfigurationError, ExitCode, as_json


def check(environ: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Print, as JSON, what is wrong with the settings, those to share, and whether all is done."""
    try:
        job = read_job(environ, arguments)
        finished = done.sentence_if_done(job)
    except ConfigurationError as error:
        print(as_json(error.problems, {}, ""))  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    print(as_json([], job.config.shared_settings(), finished))  # noqa: T201
    return ExitCode.DONE


def main(environ: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Check or train; return the exit code, unless training ends the process itself."""
    if arguments[:1] == ["check"]:
        return check(environ, arguments[1:])
    try:
        job = read_job(environ, arguments)
        finished = done.sentence_if_done(job)
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    if finished:
        print(f"{job.task.name}: {finished}")  # noqa: T201
        return ExitCode.DONE
    if not job.task.trains:
        print(f"{job.task.name}: the workers evaluate; there is nothing to do here.")  # noqa: T201
        return ExitCode.DONE
    from cluster_trainer.lifecycle import run  # noqa: PLC0415  a refusal needs none of it

    return run(job)


if __name__ == "__main__":
    # Users' own modules lie in the working directory, behind the image's own packages (`-P`).
    sys.path.append(os.getcwd())  # noqa: PTH109
    sys.exit(main(os.environ, sys.argv[1:]))
