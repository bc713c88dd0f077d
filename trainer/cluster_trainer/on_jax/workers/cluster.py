"""Connects the workers' processes: they join at Keras's import, exchange messages, and leave."""

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from cluster_trainer.private.keras_jax_names import global_state
from cluster_trainer.problems import ConfigurationError, ExitCode, PeerLostError, Problem, Told
from cluster_trainer.process.exit_code import end_by, leave_process
from cluster_trainer.settings.task import Task, names_of

ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
NUMBER, RANK = "KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID"
HEARTBEAT_SECONDS = 10
"""The silence after which a worker counts as lost; JAX's own limit is 100 s."""
LEAVING_SECONDS = 60
LOOK_MILLISECONDS = 1000
REFUSING_SECONDS = 6.0
OWN_END_SECONDS = 2 * LOOK_MILLISECONDS / 1000
REFUSAL = "refusal"
TOO_LATE = "DEADLINE_EXCEEDED"
log = logging.getLogger("trainer")


def join(task: Task, environ: Mapping[str, str], timeout_seconds: int) -> None:
    """Connect this process with the other workers' processes, before JAX computes anything.

    Args:
        task: this worker's task.
        environ: the environment, in which the entrypoint sets the addresses, the number of
            processes and the rank.
        timeout_seconds: how long to wait for the other workers.

    Raises:
        ConfigurationError: these variables are missing, or belong to another cluster; or JAX has
            computed before.
        PeerLostError: not all workers have connected.
    """
    told = [environ.get(name, "") for name in (ADDRESSES, NUMBER, RANK)]
    wanted = [str(task.num_workers), str(task.rank)]
    if not told[0] or told[1:] != wanted:
        accepted = f"{wanted[0]} and {wanted[1]}, as in TF_CONFIG, or none of the three variables"
        advice = f"Leave {ADDRESSES}, {NUMBER} and {RANK} to the entrypoint."
        raise ConfigurationError(
            [Problem(f"{NUMBER} and {RANK}", " and ".join(told[1:]), accepted, advice)]
        )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            told[0].split(",")[0],
            task.num_workers,
            task.rank,
            initialization_timeout=timeout_seconds,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=LEAVING_SECONDS,
        )
    except RuntimeError as error:
        if "must be called before" in str(error):
            accepted = "`import keras` before anything that JAX computes"
            raise ConfigurationError([Problem("the script", "JAX is in use", accepted)]) from error
        raise PeerLostError(f"the workers did not connect: {error}") from error
    workers = present()
    threading.Thread(target=workers.watch, name="refusals", daemon=True).start()
    atexit.register(_leave, workers, os.getpid())


@cache
def present() -> "JaxWorkers":
    """Return the processes that train together."""
    return JaxWorkers(global_state.client, global_state.num_processes, global_state.process_id)


class JaxWorkers:
    """Exchanges messages between the workers, with the methods of `Workers` (collectives/).

    Small messages go through JAX's coordinator, and files through the devices.

    Args:
        client: the client of JAX's coordinator; None: this process is alone.
        size: the number of processes.
        rank: this process's rank, from 0.

    Attributes:
        has_fitted: whether the script has called `fit`.
    """

    newcomers: frozenset[int] = frozenset()

    def __init__(self, client: Any, size: int, rank: int) -> None:
        self._client, self.count, self.rank = client, size, rank
        self._numbers = count()
        self._is_refusing = self.has_fitted = False

    @property
    def members(self) -> tuple[int, ...]:
        """Each rank's place in the list of all workers."""
        return tuple(range(self.count))

    def gather(self, number: int, what: str = "") -> list[int]:
        """Return every worker's number, in rank order."""
        return [int(one) for one in self.exchange(str(int(number)), what)]

    def exchange(self, mine: str, what: str) -> list[str]:
        """Return every worker's text, in rank order; all workers call this for the same purpose.

        Args:
            mine: this worker's text.
            what: the purpose, in a few words.

        Raises:
            ConfigurationError: another worker is in a different call, or has ended its script.
            PeerLostError: a worker is lost.
        """
        if self.count == 1:
            return [mine]
        number = next(self._numbers)
        self._set(f"exchange/{number}/{self.rank}", f"{what}\n{mine}")
        answers = [self._get(number, rank, what) for rank in range(self.count)]
        if number > 1:  # all workers have read the message before the last
            self._client.key_value_delete(f"exchange/{number - 2}/{self.rank}")
        return answers

    def broadcast(self, content: bytes | None, holder: int, what: str = "") -> bytes:
        """Return the content that the worker of rank `holder` gives; the others give None."""
        if self.count == 1:
            return content or b""
        size = self.gather(len(content or b""), what)[holder]
        mine = np.frombuffer(content or bytes(size), np.uint8)
        if self.rank != holder:
            mine = np.zeros(size, np.uint8)
        found = multihost_utils.broadcast_one_to_all(mine, is_source=self.rank == holder)
        return np.asarray(found).tobytes()

    def any(self, flag: bool, what: str) -> bool:  # noqa: FBT001
        """Tell whether any worker's `flag` is true; all workers call this."""
        return any(self.gather(int(flag), what))

    def _set(self, key: str, value: str) -> None:
        try:
            self._client.key_value_set(key, value, allow_overwrite=True)
        except jax.errors.JaxRuntimeError as error:
            raise PeerLostError(f"the first worker's JAX does not answer: {error}") from error

    def _get(self, number: int, rank: int, what: str) -> str:
        while True:
            try:
                text = self._client.blocking_key_value_get(
                    f"exchange/{number}/{rank}", LOOK_MILLISECONDS
                )
                break
            except jax.errors.JaxRuntimeError as error:
                if TOO_LATE not in str(error):
                    raise PeerLostError(f"{_name(rank)} is lost ({error})") from error
            if reason := self._found(f"refused/{rank}"):
                raise ConfigurationError([Told("the other workers", "", "", reason)])
            if self.has_left(rank):
                _refuse_left(rank, what)
        purpose, _, answer = str(text).partition("\n")
        if purpose != what:
            accepted = f"{purpose}, as on {_name(rank)}"
            advice = "All workers run the same script, and call the same things in the same order."
            raise ConfigurationError([Problem("the script's calls", what, accepted, advice)])
        return answer

    def refuse(self, reason: str) -> None:
        """Tell the others why this worker ends with 78, and wait a moment until they end, too.

        All leave JAX's cluster together, because its coordinator aborts workers that stay behind.
        """
        if self.count == 1:
            return
        self._is_refusing = True
        until = time.monotonic() + REFUSING_SECONDS
        with suppress(PeerLostError):
            told = f"{_name(self.rank)}: {reason}"
            self._set(REFUSAL, told)
            self._set(f"refused/{self.rank}", told)
            found = [
                self._found(f"refused/{rank}", max(1, int((until - time.monotonic()) * 1000)))
                for rank in range(self.count)
            ]
            if all(found):
                jax.distributed.shutdown()

    def watch(self) -> None:
        """End this process with 78 when another worker refuses, even in the middle of a step.

        Such a step would wait for the other worker. A worker between two steps first gets a moment
        to end by itself, with a more specific message.
        """
        with suppress(PeerLostError):
            while not (reason := self._found(REFUSAL, LOOK_MILLISECONDS)):
                pass
            time.sleep(OWN_END_SECONDS)
            if self._is_refusing:
                return
            error = ConfigurationError([Told("the other workers", "", "", reason)])
            self.refuse(reason)
            end_by(error, self.count, is_script=False)

    def has_left(self, rank: int) -> bool:
        """Tell whether a worker has reached the end of its script."""
        return bool(self._found(f"left/{rank}"))

    def _found(self, key: str, milliseconds: int = 1) -> str:
        """Return a value, after waiting for it at most `milliseconds`; empty: there is none."""
        try:
            return str(self._client.blocking_key_value_get(key, milliseconds))
        except jax.errors.JaxRuntimeError as error:
            if TOO_LATE not in str(error):
                raise PeerLostError(f"another worker is lost ({error})") from error
            return ""

    def leave(self) -> None:
        """Wait until all workers have reached the end of their scripts.

        Raises:
            PeerLostError: a worker was lost before.
        """
        self._set(f"left/{self.rank}", "1")
        for rank in range(self.count):
            while not self._found(f"left/{rank}", LOOK_MILLISECONDS):
                pass


def _name(rank: int) -> str:
    (name,) = names_of([rank])
    return name


def _refuse_left(rank: int, what: str) -> None:
    accepted = f"the end of the script, where {_name(rank)} is"
    advice = "All workers run the same script, and fit the same models."
    raise ConfigurationError([Problem("the script's calls", what, accepted, advice)])


def _leave(workers: JaxWorkers, pid: int) -> None:
    """Leave at the end of the script, together: if one leaves alone, JAX ends the others."""
    if pid != os.getpid():
        return
    if getattr(sys, "last_value", None) is not None:  # the others may wait for it in a step
        leave_process(ExitCode.CRASHED, None)
    if not workers.has_fitted:
        log.warning(
            "the script has called no `fit`, so the workers have not trained together: each has "
            "run the whole script alone"
        )
    try:
        workers.leave()
    except PeerLostError as error:
        leave_process(ExitCode.PEER_LOST, str(error))
    jax.distributed.shutdown()
