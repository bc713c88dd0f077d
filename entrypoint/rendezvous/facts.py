"""What all workers must agree on, and the card on which a worker writes it down for another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from entrypoint.cluster.spec import ClusterSpec, Task
from entrypoint.errors import HIDDEN, escaped, is_secret, shortened
from entrypoint.rendezvous.transport.messages import Message

LONGEST_VALUE = 200
"""Characters of one value on a card."""

MOST_SETTINGS = 32_768
"""Bytes that the settings take on a card; what does not fit is in the digest only."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What all workers must agree on."""

    hosts: tuple[str, ...]
    """`worker-0=10.0.0.1:2222` in rank order; see `host_list`."""
    image: str
    """The image's version, "0.1.0 (3a4601d)"; "" unknown."""
    tensorflow: str
    """TensorFlow's version, "2.21.0"; "" unknown."""
    gpus_per_worker: str
    """"" not given."""
    settings: Mapping[str, str]
    """The trainer's settings that must agree, name -> value; {} for other commands."""
    devices: str = ""
    """What the command trains on: "CPU" or "GPU"; "" where it has a wish of its own."""
    min_workers: str = ""
    """With how many workers the others go on: "2"; "" not known."""


def host_list(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the hosts of `Facts`."""
    return tuple(f"{member.task}={member.address}" for member in spec.members)


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a worker says of itself; its values are shortened and its lists are digests."""

    task: Task
    boot: str
    """Random, and new for each attempt to pass the gate: tells two processes apart."""
    is_chief: bool
    """Whether its own list says so."""
    hosts: str
    image: str
    tensorflow: str
    gpus_per_worker: str
    settings: Mapping[str, str]
    settings_digest: str
    trouble: str = ""
    """Why it has not checked in with the chief yet."""
    generation: int = 0
    """The newest ring that it was in; 0 for none."""
    ring_size: int = 0
    """How many workers that had."""
    devices: str = ""
    min_workers: str = ""
    asks: bool = False
    """Whether its command runs, and has asked for its neighbours."""

    @classmethod
    def of(  # noqa: PLR0913 -- as many as it says
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
        """Return the card of a worker."""
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
            asks=asks,
        )

    def was_replaced_by(self, other: Card) -> bool:
        """Whether the other process of the same task was in a later ring than this one.

        One that was in no ring may be the right one or not: its index may be wrong.
        """
        return 0 < self.generation < other.generation

    def message(self, kind: str, trouble: str = "") -> Message:
        """Return the message that brings the card."""
        fields = vars(self) | {"task": self.task.type, "index": self.task.index}
        return Message(kind, fields | {"trouble": shortened(escaped(trouble))})

    @classmethod
    def read(cls, message: Message) -> Card:
        """Return the card of a message; raise MessageError."""
        return cls(
            task=Task(message.text("task", LONGEST_VALUE), message.number("index")),
            is_chief=message.flag("is_chief"),
            settings=message.mapping("settings", LONGEST_VALUE),
            # An image of another version, which has to hear that it is one, may not tell these.
            generation=message.number("generation") if "generation" in message.fields else 0,
            ring_size=message.number("ring_size") if "ring_size" in message.fields else 0,
            devices=_optional(message, "devices"),
            min_workers=_optional(message, "min_workers"),
            asks=message.flag("asks") if "asks" in message.fields else False,
            **{name: message.text(name, LONGEST_VALUE) for name in _TEXTS},
        )


_TEXTS = ("boot", "hosts", "image", "tensorflow", "gpus_per_worker", "settings_digest", "trouble")


def _optional(message: Message, name: str) -> str:
    """Return a text that another image may not tell."""
    return message.text(name, LONGEST_VALUE) if name in message.fields else ""


def _short(value: str) -> str:
    """Return a value as it is shown; two that differ stay different."""
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
