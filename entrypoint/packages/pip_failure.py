"""Explains a failure of pip: the user must change something, or a retry may help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from entrypoint.errors import EXIT_PEER_LOST, Problem, shortened, signal_name
from entrypoint.packages.requirements import PYTHON
from entrypoint.packages.run_pip import PipFailure

LONGEST_WORDS = 1000
"""The number of characters of pip's last lines that a message repeats."""

COMPLAINT = re.compile(r"^(?:pip: )?error: ", re.IGNORECASE)
UNREACHED = re.compile(r"Could not fetch URL (\S+: .*) - skipping")
"""Only pip's debug log has this line. pip's output only says that there is no such package."""
ADDRESS = re.compile(r"https?://\S+|/simple/\S+")
"""Removed before LASTING is searched for, because an address may contain those words."""
NETWORK = re.compile(
    r"connection error|connection-\w+|incomplete-download|didn't respond within"
    r"|Max retries exceeded|5\d\d Server Error|(?:408|425|429) Client Error"
)
TRACEBACK = "Traceback (most recent call last)"
LASTING = re.compile(r"certificate|407 Proxy")
"""Connection failures for which a retry does not help."""


@dataclass(frozen=True)
class FailureKind:
    """A known failure: a phrase of pip's output, what is accepted, and advice."""

    marker: str
    accepted: str
    advice: str


KINDS = (
    FailureKind(
        "ResolutionImpossible",
        "packages that are compatible with the image's own",
        "The image's packages keep their versions: require these versions, or none.",
    ),
    FailureKind(
        "No matching distribution found",
        f"packages that exist as wheels for {PYTHON}",
        "The name or the version is wrong, or there is no wheel. The image has no compiler, "
        "so it installs only wheels.",
    ),
    FailureKind("", "what pip can install", ""),
)


def verdict_on(failure: PipFailure, file: Path) -> Problem | tuple[int, str]:
    """Return the problem for the user; if a retry may help, the exit code and the reason."""
    lines = [line.strip() for line in failure.output.splitlines() if line.strip()]
    unreached = list(dict.fromkeys(UNREACHED.findall(failure.notes)))
    for reason in (*unreached, " ".join(_from_complaint(lines))):
        if NETWORK.search(reason) and not LASTING.search(ADDRESS.sub("", reason)):
            return EXIT_PEER_LOST, (
                f"the packages of {file} could not be fetched: "
                f"{shortened(reason, LONGEST_WORDS).rstrip('.')}. "
                "Is the package index reachable from here (PIP_INDEX_URL, PIP_PROXY)?"
            )
    lines += [reason for reason in unreached if "404 Client Error" not in reason]
    complaint = _complaint(lines, failure.code)
    words = _last(line for line in lines if not line.endswith(complaint))
    if (
        not failure.notes and failure.code > 0 and TRACEBACK not in failure.output
    ):  # pip did not start
        accepted = "PIP_ variables and a configuration that pip understands"
        return Problem("pip's settings", complaint, accepted, words)
    kind = next(kind for kind in KINDS if kind.marker in failure.output)
    return Problem(str(file), complaint, kind.accepted, f"{kind.advice} {words}".strip())


def _from_complaint(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines from pip's first error on; none if there is no error."""
    first = next((number for number, line in enumerate(lines) if COMPLAINT.match(line)), None)
    return [] if first is None else lines[first:]


def _complaint(lines: Sequence[str], code: int) -> str:
    """Return pip's first error, otherwise its last line."""
    if code < 0:
        return f"pip was killed by {signal_name(-code)}"
    line = next(iter([*_from_complaint(lines), *lines[-1:]]), f"pip's exit code {code}")
    return COMPLAINT.sub("", line, count=1)


def _last(lines: Iterable[str]) -> str:
    """Return as many of pip's last lines as fit into a sentence; "" if there are none."""
    words = ""
    for line in reversed(list(lines)):
        longer = f"{line}; {words}" if words else line
        if len(longer) > LONGEST_WORDS:
            words = f"… {words or line[-LONGEST_WORDS:]}"
            break
        words = longer
    return f"pip says: {words}" if words else ""
