"""The container's arguments: a command, the trainer's flags, or one of the image's own commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TRAINER = ("python", "-P", "-m", "trainer")
"""-P: a folder named trainer in the working directory must not shadow the image's package."""

EXPLAIN = "explain"

STATUS = "status"
"""Shows the status of the worker in this container (`docker exec`), and starts nothing."""

SELFTEST = "selftest"
"""Tests this machine's devices and network. The trainer runs the test, and starts an entrypoint for
each part."""

EXPORT = "export"
"""Prints a file that runs the image under a scheduler, and starts nothing."""

NETWORK = "network"
"""Measures the network between the workers. All workers run it at the same time."""

TRAIN = "train"
"""Another name for the trainer: SageMaker runs `docker run IMAGE train`
(https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-dockerfile.html)."""


@dataclass(frozen=True)
class Request:
    """The command to run, and whether to run it or only to explain it."""

    command: tuple[str, ...]
    is_trainer: bool
    explain: bool = False
    as_json: bool = False

    @property
    def is_network(self) -> bool:
        """Whether the command is `network`, which this package runs itself."""
        return self.command[:1] == (NETWORK,)


def parse_arguments(arguments: Sequence[str]) -> Request:
    """Parse `[explain [--json]] [command… | [train] flags for the trainer…]`."""
    if arguments[:1] == [EXPLAIN]:
        as_json = arguments[1:2] == ["--json"]
        request = _request(arguments[2 if as_json else 1 :])
        return Request(request.command, request.is_trainer, explain=True, as_json=as_json)
    return _request(arguments)


def _request(arguments: Sequence[str]) -> Request:
    if not arguments or arguments[0].startswith("-"):
        return Request((*TRAINER, *arguments), is_trainer=True)
    if arguments[0] == TRAIN:
        return Request((*TRAINER, *arguments[1:]), is_trainer=True)
    if arguments[0] == SELFTEST:
        return Request((*TRAINER, *arguments), is_trainer=False)
    return Request(tuple(arguments), is_trainer=False)
