"""Kinds of problems, and the exit codes by which the parent process distinguishes them.

The entrypoint prints its own problems in the same form. The two packages deliberately share no
code: they communicate through environment variables and exit codes only.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from signal import Signals

from cluster_trainer.private.passed_on import PassedOn

SHOWN_CHARACTERS = 200

HIDDEN = "***"
SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "KEY")
"""If a name contains one of these words, its value is hidden; the entrypoint has the same words."""
NO_SECRET = re.compile(
    r"(?<![^\W_])(DONKEY|HOCKEY|KEYBOARD|KEYFRAME|KEYPOINT|KEYWORD|MONKEY|TOKENIZER|TURKEY)S?"
    r"(?![^\W_])"
)
"""Whole words of a name that contain one of these words, but name no secret."""


class ExitCode(IntEnum):
    """How a run ended. 78 is never worth a retry, 75 is (names from BSD's sysexits.h)."""

    DONE = 0
    CRASHED = 1
    PEER_LOST = 75
    BAD_CONFIGURATION = 78


@dataclass(frozen=True)
class Problem:
    """One thing that the user can fix: its name, the received value, accepted values, advice."""

    name: str
    received: str
    accepted: str
    advice: str = ""

    def __str__(self) -> str:
        words = NO_SECRET.sub("", self.name.upper())
        is_secret = any(word in words for word in SECRET_WORDS)
        received = shown(HIDDEN if is_secret else self.received)
        sentence = f"{self.name}: received {received}; accepted: {self.accepted}."
        return f"{sentence} {self.advice}".rstrip()


@dataclass(frozen=True)
class Told(Problem):
    """A problem that another process has found, in its words: `advice`."""

    def __str__(self) -> str:
        return self.advice


class ConfigurationError(PassedOn):
    """The run cannot start as configured; the error has every problem that was found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(render(problems))
        self.problems = tuple(problems)


class PeerLostError(PassedOn):
    """Another worker was lost or never came; the job can continue once it is back."""


class PeerStoppedError(PeerLostError):
    """Another worker was asked to stop, and all have stopped after the same step."""

    def __init__(self) -> None:
        super().__init__("another worker was asked to stop")


class StopRequestedError(PassedOn):
    """This worker was asked to stop, by the signal `signal_number`."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {Signals(signal_number).name}")
        self.signal_number = signal_number


class WorkerIsBackError(PassedOn):
    """A worker that was missing is to rejoin; the text is its name.

    The results so far are saved, and all workers resume from them.
    """


class RoundsChosenError(PassedOn):
    """The first seconds of a fit have led to averages of weights, so all workers begin it again.

    Args:
        every: the steps between two averages.
    """

    def __init__(self, every: int) -> None:
        super().__init__(f"the fit begins again, with averages of weights every {every} steps")


class RehearsedError(PassedOn):
    """A first step was done without the other workers, so that it is compiled; see Rehearsal."""


class NotRehearsedError(RehearsedError):
    """No first step could be done without the others; the text says why."""


class TrainingDivergedError(PassedOn):
    """The loss is no longer finite, so that further training is useless."""


def listed(names: Sequence[str]) -> str:
    """Return names in the form of a sentence: `a, b and c`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def told(names: Sequence[str], values: Sequence[str]) -> str:
    """Describe which worker has which value: `worker-0 has 3, worker-1 has 4`."""
    return ", ".join(f"{name} has {value}" for name, value in zip(names, values, strict=True))


def shown(received: str) -> str:
    """Quote a received value on one line, with a limited length."""
    quoted = json.dumps(received, ensure_ascii=False)
    return quoted if len(quoted) <= SHOWN_CHARACTERS else quoted[: SHOWN_CHARACTERS - 1] + "…"


def render(problems: Sequence[Problem]) -> str:
    """Return all problems as the one message that a user sees."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = "\n".join(f"  {problem}" for problem in problems)
    return (
        f"cluster-trainer: {count} in the configuration\n\n{lines}\n\n"
        "Nothing was started. docs/reference/settings.md explains every setting."
    )


def as_json(problems: Sequence[Problem], settings: Mapping[str, str], done: str) -> str:
    """Return the JSON that the entrypoint asks for.

    The entrypoint puts the problems into one message with its own, compares the settings between
    workers, and starts nothing if `done` says that the run is done.
    """
    return json.dumps(
        {
            "problems": [asdict(problem) for problem in problems],
            "settings": settings,
            "done": done,
        }
    )
