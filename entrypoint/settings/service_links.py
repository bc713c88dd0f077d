"""Kubernetes' service links: what each Service of a namespace sets in all of its pods.

A Service named `worker` sets WORKER_PORT=tcp://…, one named `trainer` TRAINER_PORT, TRAINER_SERVICE_HOST
and more: names of settings, and no settings (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables).
"""  # noqa: E501 -- an address

from __future__ import annotations

import re
from collections.abc import Iterable

from entrypoint.errors import listed

_IP = r"[0-9]+(?:\.[0-9]+){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]*"
_NUMBER = r"[0-9]{1,5}"
_PROTOCOL = "tcp|udp|sctp"
_URL = rf"(?:{_PROTOCOL})://(?:{_IP}|\[(?:{_IP})\]):{_NUMBER}"
_OF_A_PORT = rf"_PORT_{_NUMBER}_(?:TCP|UDP|SCTP)"

FORMS = tuple(
    (re.compile(f".+{name}"), re.compile(value))
    for name, value in (
        ("_SERVICE_HOST", _IP),
        (r"_SERVICE_PORT(?:_[A-Z0-9_]+)?", _NUMBER),
        ("_PORT", _URL),
        (_OF_A_PORT, _URL),
        (f"{_OF_A_PORT}_PROTO", _PROTOCOL),
        (f"{_OF_A_PORT}_PORT", _NUMBER),
        (f"{_OF_A_PORT}_ADDR", _IP),
    )
)
"""What such a variable is called after the Service's name, and what its value looks like."""


def is_service_link(name: str, text: str) -> bool:
    """Whether Kubernetes has set this variable for a Service; a wrong port does not look so."""
    return any(called.fullmatch(name) and value.fullmatch(text) for called, value in FORMS)


def service_links_note(names: Iterable[str]) -> str:
    """Return what to say of links that were left out; "" where there are none."""
    found = sorted(names)
    if not found:
        return ""
    return (
        f"ignored {listed(found)}: set by Kubernetes for a Service of that name, and no settings "
        "(enableServiceLinks: false in the pod leaves them out)"
    )
