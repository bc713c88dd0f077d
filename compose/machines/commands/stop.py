"""`stop`: stops all workers, or one of them, at a checkpoint. Also starts one of them again."""

from __future__ import annotations

from collections.abc import Mapping

from local_cluster.messages import EXIT_CONFIGURATION, EXIT_ERROR, EndError, complain, say
from machines.cluster_record import Kept, held
from machines.own_container import OwnContainer
from machines.workers import containers


def stop(kept: Kept, worker: str, environ: Mapping[str, str]) -> int:
    """Ask the workers, or one of them by its number, to stop, and wait until they have ended.

    Raises:
        EndError: there is no such worker, or another command is changing the cluster.
    """
    chosen = [chosen_of(kept, worker)] if worker else kept.containers
    say(f"asking {', '.join(one.machine.service for one in chosen)} to stop")
    with held(kept, environ):
        problems = containers.stop_all(chosen)
    for problem in problems:
        complain(problem)
    how = f"make resume WORKER={worker}" if worker else "make resume"
    if not problems:
        ended = f"worker-{worker} has ended" if worker else "all have ended"
        say(f"{ended}; `{how}` {'starts it again' if worker else 'resumes the run'}")
    return EXIT_ERROR if problems else 0


def start_again(kept: Kept, worker: str, environ: Mapping[str, str]) -> int:
    """Start one worker that has ended.

    Raises:
        EndError: there is no such worker, it does not start, or another command is changing the
            cluster.
    """
    one = chosen_of(kept, worker)
    with held(kept, environ):
        problem = containers.start_again(one)
    if problem:
        raise EndError(EXIT_ERROR, problem)
    say(f"{one.machine.service} on {one.machine.name} is started again")
    return 0


def chosen_of(kept: Kept, worker: str) -> OwnContainer:
    """Return the container of the worker with this number.

    Raises:
        EndError: there is no such worker.
    """
    for one in kept.containers:
        if worker == str(one.machine.index):
            return one
    accepted = f"the number of a worker: 0 to {len(kept.hosts) - 1}"
    raise EndError(EXIT_CONFIGURATION, f'WORKER: received "{worker}"; accepted: {accepted}.')
