"""Variables that Docker and Kubernetes set for other purposes: proxies and service links.

Docker's client configuration may set `http_proxy` in every container. TensorFlow uses gRPC, which
uses the proxy for every host that `no_proxy` does not name. That includes the other workers, so
TensorFlow would wait an hour for them
(https://grpc.github.io/grpc/core/md_doc_environment_variables.html).

Kubernetes sets variables for each Service of a namespace, in all of its pods. A Service named
`worker` sets WORKER_PORT=tcp://…. One named `trainer` sets TRAINER_PORT, TRAINER_SERVICE_HOST and
more. They have the names of settings, but are not settings
(https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from entrypoint.errors import listed

OWN_CHOICE = "grpc_proxy"
"""Only gRPC reads this variable, so setting it means that gRPC should use that proxy."""
PROXIES = ("https_proxy", "http_proxy", "all_proxy")
EXCEPTIONS = "no_proxy"
ALL = "*"
EXCEPTIONS_OF_GRPC = "no_grpc_proxy"
"""gRPC reads it instead of `no_proxy`, if it is set."""


def proxy_in_use(variables: Mapping[str, str]) -> str:
    """Return the variable that sets a proxy for connections to the workers; "" if none does."""
    names = (OWN_CHOICE, *(spelled for name in PROXIES for spelled in (name, name.upper())))
    return next((name for name in names if variables.get(name)), "")


def exceptions_for(variables: Mapping[str, str], hosts: Sequence[str]) -> dict[str, str]:
    """Return the variables with which programs connect to these hosts without a proxy.

    Returns {} if there is no proxy, or only one that is meant for gRPC. Some programs read the
    lower-case name and some the upper-case one, so both are returned. If only one was given, both
    extend it.
    """
    if proxy_in_use(variables) in ("", OWN_CHOICE):
        return {}
    lower = variables.get(EXCEPTIONS) or variables.get(EXCEPTIONS.upper(), "")
    upper = variables.get(EXCEPTIONS.upper()) or lower
    texts = {EXCEPTIONS: lower, EXCEPTIONS.upper(): upper}
    of_grpc = variables.get(EXCEPTIONS_OF_GRPC, "")
    if of_grpc or ALL in texts.values():  # gRPC does not know `*`
        texts[EXCEPTIONS_OF_GRPC] = of_grpc
    return {name: _extended(text, hosts) for name, text in texts.items()}


def proxy_note(variables: Mapping[str, str], hosts: Sequence[str]) -> str:
    """Return a note if the workers' connections bypass a proxy; "" otherwise."""
    if not exceptions_for(variables, hosts):
        return ""
    proxy = proxy_in_use(variables)
    return (
        f"{proxy} is set: the workers do not use it for each other, because their hosts are "
        f"added to {EXCEPTIONS}"
    )


def grpc_note(variables: Mapping[str, str]) -> str:
    """Return a note if gRPC has its own proxy, which the gate does not use; else ""."""
    is_set = proxy_in_use(variables) == OWN_CHOICE
    return f"{OWN_CHOICE} is set: TensorFlow dials the workers through it" if is_set else ""


def _extended(text: str, hosts: Sequence[str]) -> str:
    """Return the list of exceptions with these hosts added. `*` must be the only entry."""
    if text.strip() == ALL:
        return text
    given = [entry.strip() for entry in text.split(",") if entry.strip()]
    return ",".join(dict.fromkeys((*given, *hosts)))


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
"""The suffix of such a variable after the Service's name, and the pattern of its value."""


def is_service_link(name: str, text: str) -> bool:
    """Whether Kubernetes has set this variable for a Service. A mistyped port does not match."""
    return any(called.fullmatch(name) and value.fullmatch(text) for called, value in FORMS)


def service_links_note(names: Iterable[str]) -> str:
    """Return a note about ignored service links; "" if there are none."""
    found = sorted(names)
    if not found:
        return ""
    return (
        f"ignored {listed(found)}: set by Kubernetes for a Service of that name, not as settings "
        "(enableServiceLinks: false in the pod leaves them out)"
    )
