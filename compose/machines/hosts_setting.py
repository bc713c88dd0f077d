"""Reads HOSTS: the machines of a cluster, on one line or in a file."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from local_cluster.messages import EXIT_CONFIGURATION, EndError

PORT = 2222
FOLDER = "~/cluster-trainer-runs"
"""The default of dir=, the folder for runs and code."""
EARLIER_FOLDER = "~/cluster-trainer"
"""The default of earlier versions. A clone of this repository may have the same name."""
MOST_PORT = 65535
COMMENT = re.compile(r"(?:^|\s)#")
TARGET = re.compile(
    r"(?P<user>[A-Za-z_][A-Za-z0-9_.-]*@)?"
    r"(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(?P<port>:[0-9]{1,5})?"
)
ADDRESS = r"[A-Za-z0-9][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\]"
FORMS = {
    "gpus": (r"[0-9]+(,[0-9]+)*|all", "gpus=0,1 or gpus=all"),
    "data": (r"/[^:]*", "data=/a/folder, a path without a colon"),
    "dir": (r"~?/[^:]*", "dir=/a/folder or dir=~/a/folder, a path without a colon"),
    "address": (ADDRESS, "address=10.1.1.1, a name or an address; of IPv6, address=[fd00::1]"),
    "port": (r"[1-9][0-9]{0,4}", f"port=2222, a number from 1 to {MOST_PORT}"),
}
A_HOST = (
    "user@host or user@host:sshport (with an IPv6 address, user@[fd00::1]), with options after it: "
    + ", ".join(f"{name}=" for name in FORMS)
)


@dataclass(frozen=True)
class Host:
    """One machine, as an entry of HOSTS describes it.

    Attributes:
        target: "user@host" or "user@host:sshport".
        gpus: the GPUs to train on, "0,1" or "all"; "": all, if the image is for GPUs.
        data: the machine's folder that is mounted at /data; "": a folder in `dir`.
        dir: the machine's folder for runs and code; "~" is the user's home folder. "": it is not
            given.
        address: the address by which the other machines reach it; "": the one SSH connects to.
        port: the port of its worker.
    """

    target: str
    gpus: str = ""
    data: str = ""
    dir: str = ""
    address: str = ""
    port: str = str(PORT)

    @property
    def ssh(self) -> tuple[str, ...]:
        """The arguments of `ssh` for this machine."""
        match = TARGET.fullmatch(self.target)
        assert match  # noqa: S101 -- `parse` has checked it
        name = (match["user"] or "") + match["name"].strip("[]")
        return (*(("-p", match["port"][1:]) if match["port"] else ()), name)

    @property
    def text(self) -> str:
        """The entry in a form that `parse` reads."""
        options = [one.name for one in fields(self)[1:] if getattr(self, one.name) != one.default]
        given = [f"{name}={shlex.quote(getattr(self, name))}" for name in options]
        return " ".join([self.target, *given])


def read(text: str) -> list[Host]:
    """Return the hosts of HOSTS: entries, or the path of a file with one entry on each line.

    Raises:
        EndError: an entry is wrong; the message has a sentence for each problem.
    """
    lines = [text]
    where = text.strip()
    if _is_path(where):
        try:
            lines = Path(os.path.expanduser(where)).read_text(encoding="utf-8-sig").splitlines()  # noqa: PTH111 -- without a home folder, it raises nothing
        except (OSError, UnicodeDecodeError) as error:
            accepted = f"a readable file of hosts, or {A_HOST}"
            message = f'HOSTS: received "{where}" ({error}); accepted: {accepted}.'
            raise EndError(EXIT_CONFIGURATION, message) from error
    return parse(lines)


def _is_path(text: str) -> bool:
    """Tell whether a text is the path of a file, whose name may have spaces, and not entries."""
    looks_like_one = len(text.split()) == 1 and ("/" in text or text.endswith(".txt"))
    return looks_like_one or os.path.isfile(os.path.expanduser(text))  # noqa: PTH111, PTH113 -- of any length


def parse(lines: Iterable[str]) -> list[Host]:
    """Return the hosts in these lines. A line may have several entries; # begins a comment.

    Raises:
        EndError: an entry is wrong; the message has a sentence for each problem.
    """
    problems: list[str] = []
    entries = [entry for line in lines for entry in _entries(line, problems)]
    hosts = [_host(entry, problems) for entry in entries]
    if not hosts and not problems:
        problems.append(f"HOSTS: received no host; accepted: {A_HOST}.")
    problems += _double(hosts)
    if problems:
        raise EndError(EXIT_CONFIGURATION, *problems)
    return hosts


def _entries(line: str, problems: list[str]) -> list[list[str]]:
    """Return the entries of a line, each as a host and its options."""
    try:
        words = _words(line)
    except ValueError as error:
        problems.append(f'HOSTS: received "{line.strip()}" ({error}); accepted: {A_HOST}.')
        return []
    entries: list[list[str]] = []
    for word in words:
        if "=" not in word:
            entries.append([word])
        elif entries:
            entries[-1].append(word)
        else:
            problems.append(f'HOSTS: received "{word}" without a host before it.')
    return entries


def _words(line: str) -> list[str]:
    """Split a line as a shell does: # begins a comment only at the beginning of a word.

    Raises:
        ValueError: a quotation has no end.
    """
    for found in COMMENT.finditer(line):
        with suppress(ValueError):  # this one is within quotes
            return shlex.split(line[: found.start()])
    return shlex.split(line)


def _host(entry: Sequence[str], problems: list[str]) -> Host:
    target, *options = entry
    match = TARGET.fullmatch(target)
    if not match or not 0 < int((match["port"] or ":22")[1:]) <= MOST_PORT:
        problems.append(f'HOSTS: received "{target}"; accepted: {A_HOST}.')
    given: dict[str, str] = {}
    for option in options:
        name, _, value = option.partition("=")
        pattern, accepted = FORMS.get(name, ("(?!)", ", ".join(f"{one}=" for one in FORMS)))
        valid = re.fullmatch(pattern, value) and (name != "port" or int(value) <= MOST_PORT)
        if not valid:
            problems.append(f'HOSTS: {target}: received "{option}"; accepted: {accepted}.')
        elif name in given:
            problems.append(f"HOSTS: {target}: received {name}= twice; accepted: once.")
        else:
            given[name] = value
    return Host(target, **given)


def _double(hosts: Sequence[Host]) -> list[str]:
    """Return a sentence for each host that shares its port or a GPU with an earlier host."""
    found = []
    for number, host in enumerate(hosts):
        for other in hosts[:number]:
            same = other.target == host.target
            if other.port == host.port and (
                same or (host.address and host.address == other.address)
            ):
                found.append(
                    f"HOSTS: received {host.target} twice with port={host.port}; accepted: another "
                    "port= for each worker of a machine."
                )
            elif same and _share(host.gpus, other.gpus):
                found.append(
                    f"HOSTS: {host.target}: received gpus={other.gpus} and gpus={host.gpus} for "
                    "two workers of one machine; accepted: no GPU twice."
                )
    return found


def _share(gpus: str, others: str) -> bool:
    """Tell whether two workers would have a GPU in common."""
    if not gpus or not others:
        return False
    return "all" in (gpus, others) or bool({*gpus.split(",")} & {*others.split(",")})
