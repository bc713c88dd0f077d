"""Finds this machine's entry in a host list, if no index is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrypoint.cluster.spec import Member, Resolution, Task
from entrypoint.errors import ConfigurationError, OpenProblem, Problem, listed

if TYPE_CHECKING:  # socket is slow to import
    from entrypoint.cluster.own_machine import Machine


@dataclass(frozen=True)
class OwnTask:
    """The task that was found, and the reason."""

    task: Task
    reason: str


def find_own_task(resolution: Resolution, machine: Machine) -> OwnTask:
    """Return the one task whose host is this machine's name or address.

    Raises ConfigurationError if no task or several tasks match; the message lists what was
    compared. It is an OpenProblem if none matches, and no name server has answered for some hosts.
    """
    members = resolution.spec.members
    answers = machine.resolve(member.address.host for member in members)
    reasons = {member.task: _reason(member, machine, answers) for member in members}
    places = [OwnTask(task, reason) for task, reason in reasons.items() if reason]
    if len(places) == 1:
        return places[0]
    raise ConfigurationError([_problem(places, resolution, machine, answers)])


def _reason(member: Member, machine: Machine, answers: Mapping[str, tuple[str, ...]]) -> str:
    """Return why the member is this machine; "" if it is not."""
    host = member.address.host
    if host.rstrip(".") == machine.host_name.lower():
        return f"{host} is this machine's name"
    own = [address for address in answers.get(host, ()) if machine.has_address(address)]
    if own == [host]:
        return f"{host} is this machine's address"
    return f"{host} is {own[0]}, this machine's address" if own else ""


def _problem(
    places: list[OwnTask],
    resolution: Resolution,
    machine: Machine,
    answers: Mapping[str, tuple[str, ...]],
) -> Problem:
    hosts = [address.host for address in resolution.spec.addresses]
    silent = [host for host in hosts if not answers.get(host)]
    is_open = not places and any(host not in answers for host in hosts)
    said = [
        f'Compared the hosts with this machine\'s name "{machine.host_name}" and addresses:',
        "; ".join(place.reason for place in places[:3]) or f"none of {listed(hosts)} is this one",
        f"(not resolved: {listed(silent)})" if silent else "",
    ]
    source, last = resolution.source, len(hosts) - 1
    accepted = f"0 to {last}, or nothing if exactly one entry of {source} is this machine"
    if is_open:
        said.append("and no name server has answered for some of them: the next start may find it")
    text = " ".join(filter(None, said)) + "."
    return (OpenProblem if is_open else Problem)("WORKER_INDEX", None, accepted, text)
