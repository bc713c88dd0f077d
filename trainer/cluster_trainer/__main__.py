"""`python -m trainer`: read the settings, then import TensorFlow and train.

`python -m trainer check` only prints JSON: the problems of the settings, the settings that all
workers must share, and whether the run is already done.

`python -m trainer prepare NAME [FOLDER]` prepares a data set of TensorFlow Datasets.

`python -m trainer selftest` tries this machine's devices and its network.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster_trainer.problems import ConfigurationError, ExitCode, as_json
from cluster_trainer.results import done
from cluster_trainer.settings.clusters import refuse_fewer_without_ring
from cluster_trainer.settings.job import Job, engine_off, read_job
from cluster_trainer.settings.names.references import look_in


def check(environ: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Print JSON: problems of the settings, shared settings, and whether the run is done."""
    try:
        job = _read(environ, arguments)
        finished = done.sentence_if_done(job)
    except ConfigurationError as error:
        print(as_json(error.problems, {}, ""))  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    print(as_json([], job.config.shared_settings(), finished))  # noqa: T201
    return ExitCode.DONE


def _read(environ: Mapping[str, str], arguments: Sequence[str]) -> Job:
    """Read the settings and the task of this process.

    Raises:
        ConfigurationError: something is not acceptable.
    """
    engine = environ.get("CLUSTER_TRAINER_ENGINE", "").strip()
    others = [engine_off(engine)] if engine not in ("", "on") else []
    job = read_job(environ, arguments, others=others)
    if job.may_be_fewer:
        refuse_fewer_without_ring(job.config)
    return job


def prepare(_: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Prepare a data set; return the exit code."""
    parser = argparse.ArgumentParser(prog="trainer prepare")
    parser.add_argument("name", help="the name of a data set of TensorFlow Datasets")
    parser.add_argument("folder", nargs="?", default="/data", help="default: /data")
    given = parser.parse_args(arguments)
    from cluster_trainer.data.preparing import prepare as preparing  # noqa: PLC0415  it is slow

    return preparing.main(given.name, given.folder)


def selftest(environ: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Try this machine's devices and its network; return the exit code."""
    from cluster_trainer.selftest.command import run  # noqa: PLC0415  no other start needs it

    return run(arguments, environ)


COMMANDS = {"check": check, "prepare": prepare, "selftest": selftest}


def main(environ: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Check or train; return the exit code, unless training ends the process itself."""
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](environ, arguments[1:])
    try:
        job = _read(environ, arguments)
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
    from cluster_trainer.process.lifecycle import run  # noqa: PLC0415  a refusal needs none of it

    return run(job, _training)


def _training() -> Any:
    from cluster_trainer.train import train_and_evaluate  # noqa: PLC0415  TensorFlow's import

    return train_and_evaluate


if __name__ == "__main__":
    look_in(Path.cwd())  # `-P` has removed it
    sys.exit(main(os.environ, sys.argv[1:]))
