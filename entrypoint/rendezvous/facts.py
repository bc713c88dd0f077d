"""The facts that all workers must agree on, and the card that sends them to another worker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from entrypoint.cluster.spec import ClusterSpec, Task
from entrypoint.errors import HIDDEN, escaped, is_secret, shortened
from entrypoint.rendezvous.transport.messages import Message

LONGEST_VALUE = 200
"""The number of characters of one value on a card."""

COMMAND = "command"
"""The only setting of a command that is part of the entrypoint, such as `network`: its name."""

MOST_SETTINGS = 32_768
"""The number of bytes for settings on a card. The digest also covers those that do not fit."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts that all workers must agree on."""

    hosts: tuple[str, ...]
    """`worker-0=10.0.0.1:2222` in rank order; see `host_list`."""
    image: str
    """The image's version, "0.1.0 (3a4601d)"; "" if it is unknown."""
    tensorflow: str
    """TensorFlow's version, "2.21.0"; "" if it is unknown."""
    gpus_per_worker: str
    """"" if it is not set."""
    settings: Mapping[str, str]
    """The trainer's settings that must agree, name -> value. A command of the entrypoint has only
    COMMAND, and other commands have none."""
    devices: str = ""
    """The kind of device that the command trains on, "CPU" or "GPU"; "" if a setting chooses it."""
    min_workers: str = ""
    """MIN_WORKERS, "2"; "" if it is unknown."""
    workspace: str = ""
    """WORKSPACE_DIGEST; "" if it is not set."""
    job: str = ""
    """The scheduler's job, "Slurm job 4711.0"; "" if it is unknown. Workers of another job may
    have the same list. They are not this worker's peers, so they contradict nothing."""


def host_list(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the value of `Facts.hosts`."""
    return tuple(f"{member.task}={member.address}" for member in spec.members)


@dataclass(frozen=True, kw_only=True)
class Card:
    """The facts that a worker sends about itself: shortened values, and digests of lists."""

    task: Task
    boot: str
    """A random number, new for each attempt to pass the gate. It distinguishes two processes."""
    is_chief: bool
    """Whether the worker is the chief in its own list."""
    hosts: str
    image: str
    tensorflow: str
    gpus_per_worker: str
    settings: Mapping[str, str]
    settings_digest: str
    trouble: str = ""
    """Why the worker has not checked in with the chief yet."""
    generation: int = 0
    """The newest ring that the worker was in; 0 for none."""
    ring_size: int = 0
    """The number of workers in that ring."""
    devices: str = ""
    min_workers: str = ""
    workspace: str = ""
    job: str = ""
    asks: bool = False
    """Whether the worker's command runs, and has asked for its neighbours."""

    @classmethod
    def of(  # noqa: PLR0913 -- all parts of a card
        cls,
        facts: Facts,
        task: Task,
        boot: str,
        *,
        is_chief: bool,
        generation: int = 0,
        ring_size: int = 0,
        asks: bool = False,
    ) -> Card:
        """Return the card of this worker."""
        return cls(
            task=task,
            boot=boot,
            is_chief=is_chief,
            hosts=_digest(list(facts.hosts)),
            image=_short(facts.image),
            tensorflow=_short(facts.tensorflow),
            gpus_per_worker=_short(facts.gpus_per_worker),
            settings=_shown(facts.settings),
            settings_digest=_digest(dict(sorted(facts.settings.items()))),
            generation=generation,
            ring_size=ring_size,
            devices=facts.devices,
            min_workers=facts.min_workers,
            workspace=facts.workspace,
            job=_short(facts.job),
            asks=asks,
        )

    def was_replaced_by(self, other: Card) -> bool:
        """Whether the other process of the same task was in a later ring than this one.

        False if this one was in no ring: it may be the right process, or have a wrong index.
        """
        return 0 < self.generation < other.generation

    def message(self, kind: str, trouble: str = "") -> Message:
        """Return the message with the card."""
        fields = vars(self) | {"task": self.task.type, "index": self.task.index}
        return Message(kind, fields | {"trouble": shortened(escaped(trouble))})

    @classmethod
    def read(cls, message: Message) -> Card:
        """Read the card of a message. Raises MessageError."""
        return cls(
            task=Task(message.text("task", LONGEST_VALUE), message.number("index")),
            is_chief=message.flag("is_chief"),
            settings=message.mapping("settings", LONGEST_VALUE),
            # Another version of the image may omit these. Its worker must still be told that the
            # versions differ.
            generation=message.number("generation") if "generation" in message.fields else 0,
            ring_size=message.number("ring_size") if "ring_size" in message.fields else 0,
            devices=_optional(message, "devices"),
            min_workers=_optional(message, "min_workers"),
            workspace=_optional(message, "workspace"),
            job=_optional(message, "job"),
            asks=message.flag("asks") if "asks" in message.fields else False,
            **{name: message.text(name, LONGEST_VALUE) for name in _TEXTS},
        )


_TEXTS = ("boot", "hosts", "image", "tensorflow", "gpus_per_worker", "settings_digest", "trouble")


def _optional(message: Message, name: str) -> str:
    """Return a text that another version of the image may omit."""
    return message.text(name, LONGEST_VALUE) if name in message.fields else ""


def _short(value: str) -> str:
    """Return a value in at most 200 characters. Different values remain different."""
    shown = escaped(value)
    if len(shown) <= LONGEST_VALUE:
        return shown
    return f"{shortened(shown, LONGEST_VALUE - 24)} (sha256 {_digest(value)[:12]})"


def _shown(settings: Mapping[str, str]) -> dict[str, str]:
    shown: dict[str, str] = {}
    room = MOST_SETTINGS
    for name in sorted(settings):
        entry = {shortened(escaped(name)): HIDDEN if is_secret(name) else _short(settings[name])}
        room -= len(json.dumps(entry))
        if room < 0:
            break
        shown |= entry
    return shown


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
