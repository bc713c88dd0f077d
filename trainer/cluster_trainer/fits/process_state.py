"""The state of this process: the program that calls `fit`, and the objects that its fits share."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cluster_trainer.fits.kept.ended_fits import EndedFits
from cluster_trainer.process.network_limit import NetworkLimit

if TYPE_CHECKING:
    from cluster_trainer.fits.program import Outcome, Program
    from cluster_trainer.fits.script.script import Script


@dataclass
class Process:
    """The objects of one process. A forked process has its own.

    Attributes:
        pid: the process id.
        script: the user's script; None: it has not called `fit` yet.
        numbers: counts the script's fits, from 0.
        calls: how the script would end because of its calls besides `fit`; None: there were none.
        locks: the locks of the folders into which the process saves fits.
        folders: the folders into which `cluster_trainer.fit` has trained.
        programs: the built-in trainer, by the thread that runs it.
        ended: the fits that have ended.
        network: notes how long the workers waited for sums.
        beginning: a lock, held while the script begins; two of its threads may do so at once.
        fitting: a lock, held while a thread runs a fit.
    """

    pid: int = field(default_factory=os.getpid)
    script: "Script | None" = None
    numbers: Iterator[int] = field(default_factory=count)
    calls: "Outcome | None" = None
    locks: dict[Path, IO[str]] = field(default_factory=dict)
    folders: set[Path] = field(default_factory=set)
    programs: "dict[int, Program]" = field(default_factory=dict)
    ended: EndedFits = field(default_factory=EndedFits)
    network: NetworkLimit = field(default_factory=NetworkLimit)
    beginning: threading.Lock = field(default_factory=threading.Lock)
    fitting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def program(self) -> "Program | None":
        """The program whose `fit` this thread calls; None: a script calls its first one."""
        return self.programs.get(threading.get_ident(), self.script)

    @contextmanager
    def running(self, program: "Program") -> Iterator[None]:
        """Make `program` the caller of this thread's fits within the context."""
        thread = threading.get_ident()
        self.programs[thread] = program
        try:
            yield
        finally:
            del self.programs[thread]


_present = Process()


def present() -> Process:
    """Return this process's object; that of a forked process begins without a program."""
    global _present  # noqa: PLW0603  the one place that holds it: Keras's import passes nothing
    if (pid := os.getpid()) != _present.pid:
        _present = replace(
            _present,
            pid=pid,
            script=None,
            locks={},
            programs={},
            beginning=threading.Lock(),
            fitting=threading.Lock(),
        )
    return _present
